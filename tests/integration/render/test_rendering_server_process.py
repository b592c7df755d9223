"""`dataserver serve` with conversations, as processes: ended in the middle, and several at once."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from textlab import ROWS, eventually, samples_of, spec_of, write_lines

from dataserver.client import DataClient

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@contextmanager
def serving(directory: Path, *words: str) -> Iterator[str]:
    """The endpoint of a server of `chats.jsonl` in `directory`, which is told to end at the end of the block."""
    command = [sys.executable, "-m", "dataserver.cli.main", "serve", "server.toml", *words]
    with (directory / "log").open("a") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, cwd=directory)
        try:
            line = next(line for line in process.stdout if line.startswith("listening on "))
            yield line.split()[2]
            process.terminate()
            process.stdout.read()
            assert process.wait() == 0
        finally:
            process.kill()
            process.wait()
            process.stdout.close()


@pytest.fixture
def directory(chatml, tmp_path) -> Path:
    (tmp_path / "server.toml").write_text(
        'listen = "127.0.0.1:0"\nmetrics_listen = ""\nindex_dir = "index"\n'
        f'[stores.chat]\npath = "chats.jsonl"\n[stores.chat.render]\ntokenizer = "{chatml}"\n'
    )
    return tmp_path


def test_a_server_that_is_ended_while_it_renders_goes_on_at_its_next_start(directory):
    long = [{"prompt": f"question {n}", "completion": "so it is, " * 100} for n in range(6000)]
    write_lines(directory / "chats.jsonl", long)
    with serving(directory) as endpoint, DataClient(endpoint) as client:
        eventually(lambda: client.get_store("chat").rendering.rows)
    parts = list((directory / "index" / "rendered").glob("*.rendering-*/part-*.json"))
    assert parts, "what was rendered is kept"
    before = {part.stem: part.with_suffix(".arrow").stat() for part in parts}
    assert len(before) < 90, "it was ended in the middle"
    with serving(directory) as endpoint, DataClient(endpoint) as client:
        client.await_store("chat")
        assert client.get_store("chat").rows == len(long)
    [store] = [path for path in (directory / "index" / "rendered").iterdir() if path.is_dir()]
    for name, stat in before.items():
        now = (store / f"{name}.arrow").stat()
        assert (now.st_ino, now.st_mtime_ns) == (stat.st_ino, stat.st_mtime_ns), f"{name} was rendered again"


def test_of_several_workers_one_renders_and_all_serve(directory):
    write_lines(directory / "chats.jsonl", ROWS)
    with serving(directory, "--workers", "2") as endpoint:
        eventually(lambda: (directory / "log").read_text().count("store chat is rendered: 40 rows") == 2)
        for run in range(6):  # connections are spread over the workers
            with DataClient(endpoint) as client:
                client.create_run(f"run-{run}", spec_of("chat"))
                assert samples_of(client, f"run-{run}") == len(ROWS)
    assert len([path for path in (directory / "index" / "rendered").iterdir() if path.is_dir()]) == 1
    said = (directory / "log").read_text()
    assert "Traceback" not in said
