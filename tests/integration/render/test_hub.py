"""Data sets by name, through `datasets`; the builders here are local ones."""

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from dataserver.errors import InvalidConfigError
from dataserver.render.hub import find_data_set, is_data_set, telling_growth
from dataserver.render.pace import Stage
from dataserver.render.rows import chunks_of, rows_of

README = """---
configs:
- config_name: math
  data_files:
  - {split: train, path: math.jsonl}
  - {split: validation, path: held.jsonl}
- config_name: code
  data_files: code.jsonl
---
"""


@pytest.fixture(scope="module")
def builder(tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("hub") / "set"
    directory.mkdir()
    (directory / "README.md").write_text(README)
    for name in ("math", "held", "code"):
        lines = [json.dumps({"prompt": f"{name} {n}", "completion": "yes"}) + "\n" for n in range(20)]
        (directory / f"{name}.jsonl").write_text("".join(lines))
    return directory


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


@pytest.mark.parametrize(
    ("which", "first"), [(":math", "math 0"), (":math@validation", "held 0"), (":code@train", "code 0")]
)
def test_a_subset_and_split_are_read_where_datasets_keeps_them(builder, which, first):
    found = find_data_set(f"datasets://{builder}{which}")
    rows = [row.value for chunk in chunks_of(found) for row in rows_of(found, chunk)]
    assert (len(rows), rows[0]["prompt"]) == (20, first)


def test_what_is_not_there_is_refused_by_name(builder):
    with pytest.raises(InvalidConfigError, match=r"':physics' cannot be had|physics' cannot be had"):
        find_data_set(f"datasets://{builder}:physics")
    with pytest.raises(InvalidConfigError, match=r"cannot be had .* Unknown split"):
        find_data_set(f"datasets://{builder}:math@test")
    with pytest.raises(InvalidConfigError, match="names no data set"):
        find_data_set(f"datasets://{builder}:math@train[:10%]")
    assert not is_data_set("s3://bucket/set")


def test_without_a_network_the_error_says_so(tmp_path, chatml):
    command = [
        sys.executable, "-m", "dataserver.cli.main", "store", "render", "datasets://nobody/knows-this", "--tokenizer",
        str(chatml), "--out", str(tmp_path / "out"),
    ]  # fmt: skip
    environment = {"PATH": "", "HOME": str(tmp_path), "HF_HUB_OFFLINE": "1", "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=100)
    assert done.returncode != 0
    assert "the data set 'datasets://nobody/knows-this' cannot be had" in done.stderr
    assert "can this machine reach the hub?" in done.stderr
    assert "Traceback" not in done.stderr


def test_how_far_fetching_is_is_told_and_no_other_bar_is_written_over_it(builder, capfd):
    told = []
    found = find_data_set(f"datasets://{builder}:math", Stage("fetching", told.append))
    kept = sum((found.directory / name).stat().st_size for name in found.paths)
    assert told[-1].done >= kept > 0
    assert told[-1].text() == "being fetched: 0 MB", "this set does not say how large it is"
    assert capfd.readouterr().err == ""
    find_data_set(f"datasets://{builder}:math", Stage("fetching", told.append))
    assert told[-1].done == 0, "it was there already"


def test_what_comes_is_told_while_it_comes(tmp_path):
    told, half = [], threading.Event()

    def tell(done: int, total: int) -> None:
        told.append((done, total))
        if done == 500:
            half.set()

    sent, kept = tmp_path / "sent", tmp_path / "kept"
    sent.mkdir()
    (sent / "before").write_bytes(b"x" * 70)
    with telling_growth([sent, kept], 1000, tell):
        (sent / "blob").write_bytes(b"x" * 500)
        assert half.wait(60)
        kept.mkdir()
        (kept / "rest").write_bytes(b"x" * 700)
    assert (500, 1000) in told
    assert told[-1] == (1200, 1200), "more than the set said of itself"
