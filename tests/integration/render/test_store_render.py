"""`dataserver store render`: the same store from every form of the input, whoever renders it and whatever is killed."""

import gzip
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dataserver.errors import InvalidConfigError, StoreRefusedError
from dataserver.render.conversation import conversation_of
from dataserver.render.job import Work, job_key, render_store
from dataserver.render.part import PartReport, render_part
from dataserver.render.rows import chunks_of, find_input
from dataserver.render.tokenizer import open_renderer
from dataserver.render_options import RenderOptions, render_options
from dataserver.stores import open_store

WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "the", "lazy", "dog", "and", "then", "it", "sleeps"]


def conversations(count: int, seed: int = 0) -> list[dict]:
    draw = random.Random(seed)

    def text():
        return " ".join(draw.choices(WORDS, k=draw.randint(1, 30)))

    return [
        {
            "messages": [
                message
                for _ in range(draw.randint(1, 3))
                for message in ({"role": "user", "content": text()}, {"role": "assistant", "content": text()})
            ]
        }
        for _ in range(count)
    ]


def write_lines(path: Path, rows: list) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def render(*words: object, fails: bool = False) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "dataserver.cli.main", "store", "render", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert (done.returncode != 0) == fails, done.stderr
    return done


def digests(store: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(store.glob("*.arrow"))}


def render_here(source: Path, out: Path, **options: object) -> PartReport:
    """Without the command line and other processes, which take seconds to start."""
    settings = render_options(**options)
    renderer = open_renderer(settings)

    def engine(work: Work):
        for chunk in work.chunks:
            place = {"renderer": renderer, "options": work.options, "directory": work.directory}
            yield chunk.number, render_part(work.source, chunk, **place)

    found = find_input(source)
    key = job_key(found, settings)
    return render_store(found, out, settings, key=key, engine=engine, progress=lambda *_: None)


@pytest.fixture(scope="module")
def rows() -> list[dict]:
    return conversations(400)


@pytest.fixture(scope="module")
def store(rows, chatml, tmp_path_factory) -> Path:
    """What becomes of JSON Lines."""
    directory = tmp_path_factory.mktemp("render")
    render_here(write_lines(directory / "chats.jsonl", rows), directory / "store", tokenizer=chatml)
    return directory / "store"


def test_every_row_is_what_the_renderer_makes_of_it(rows, store, chatml, tmp_path):
    renderer = open_renderer(RenderOptions(tokenizer=chatml))
    with open_store(store, index_dir=tmp_path) as opened:
        assert len(opened) == len(rows)
        for row, found in zip(rows, opened, strict=True):
            sample = renderer.render(conversation_of(row))
            assert found.input_ids.tolist() == sample.input_ids.tolist()
            assert found.loss_mask.tolist() == [int(target) for target in sample.loss_mask]


def test_more_processes_and_more_files_give_the_same_rows(rows, store, chatml, tmp_path):
    source = tmp_path / "chats"
    source.mkdir()
    for shard in range(3):
        write_lines(source / f"{shard}.jsonl", rows[shard * 150 : (shard + 1) * 150])
    with gzip.open(source / "2.jsonl.gz", "wb") as file:
        file.write((source / "2.jsonl").read_bytes())
    (source / "2.jsonl").unlink()
    render(source, "--tokenizer", chatml, "--out", tmp_path / "again", "--processes", 2)
    assert contents(tmp_path / "again", tmp_path) == contents(store, tmp_path)


@pytest.mark.parametrize("form", ["parquet", "wide_parquet", "arrow", "stream"])
def test_columns_give_the_same_rows_as_lines(rows, store, chatml, tmp_path, form):
    table = pa.Table.from_pylist([{**row, "prompt": None} for row in rows])
    source = tmp_path / f"chats.{'parquet' if 'parquet' in form else 'arrow'}"
    if "parquet" in form:
        pq.write_table(table, source, row_group_size=90 if form == "parquet" else None)
        assert form == "parquet" or len(chunks_of(find_input(source))) > 1, "one row group, in more than one chunk"
    else:
        opened = pa.ipc.new_file if form == "arrow" else pa.ipc.new_stream
        with pa.OSFile(str(source), "wb") as sink, opened(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=90)
    render_here(source, tmp_path / "again", tokenizer=chatml)
    assert contents(tmp_path / "again", tmp_path) == contents(store, tmp_path)


def contents(store: Path, index_dir: Path) -> list:
    with open_store(store, index_dir=index_dir / "indexes") as opened:
        return [(row.input_ids.tolist(), row.loss_mask.tolist()) for row in opened]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_job_that_is_killed_goes_on_and_gives_the_same_bytes(rows, chatml, tmp_path):
    source = write_lines(tmp_path / "chats.jsonl", rows * 8)
    words = (source, "--tokenizer", chatml, "--processes", 1)
    render(*words, "--out", tmp_path / "whole")
    out = tmp_path / "killed"
    for kill_at in (2, 5, 9):
        command = [sys.executable, "-m", "dataserver.cli.main", "store", "render", *map(str, words), "--out", str(out)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as job:
            wait_for_parts(out, kill_at, job)
            os.killpg(job.pid, signal.SIGKILL)
        assert not out.exists(), "a store that is not whole must not be there"
    done = render(*words, "--out", out)
    assert digests(out) == digests(tmp_path / "whole")
    assert "rendered: " in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["chats.jsonl", "killed", "whole"]


def wait_for_parts(out: Path, count: int, job: subprocess.Popen) -> None:
    while job.poll() is None:
        if len(list(out.parent.glob(f"{out.name}.rendering-*/*.json"))) >= count:
            return
        os.sched_yield()
    raise AssertionError(job.stderr.read())


def test_what_was_rendered_is_not_rendered_again_and_never_overwritten(rows, chatml, tmp_path):
    source, out = write_lines(tmp_path / "chats.jsonl", rows[:20]), tmp_path / "out"
    first = render_here(source, out, tokenizer=chatml)
    before = digests(out)
    assert render_here(source, out, tokenizer=chatml) == first
    assert first.rows == first.samples == 20
    with pytest.raises(InvalidConfigError, match="is there already, and was not rendered from this input with these"):
        render_here(source, out, tokenizer=chatml, train_on="last")
    assert digests(out) == before


def test_a_bad_row_stops_the_job_with_its_file_and_number_or_is_set_aside(rows, chatml, tmp_path):
    bad = [{"messages": "hi"}, {"text": "hi"}, "no object", {"messages": [{"role": "user", "content": "no target"}]}]
    source = tmp_path / "chats.jsonl"
    lines = [json.dumps(row) for row in rows[:30]]
    lines[7:7] = [*map(json.dumps, bad), '{"messages": [']
    source.write_text("\n".join(lines) + "\n")
    words = (source, "--tokenizer", chatml, "--out", tmp_path / "out")
    assert "File 'chats.jsonl', row 7: 'messages' is text, not a list of messages." in render(*words, fails=True).stderr
    report = json.loads(render(*words, "--on-error", "collect", "--json").stdout)
    assert (report["rows"], report["samples"], report["rejects"], report["dropped"]) == (35, 30, 4, {"no_target": 1})
    rejects = [json.loads(line) for line in (tmp_path / "out" / "_rejects.jsonl").read_text().splitlines()]
    assert [(reject["path"], reject["row"]) for reject in rejects] == [("chats.jsonl", row) for row in (7, 8, 9, 11)]
    assert "is no JSON" in rejects[3]["reason"]
    told = render(*words, "--on-error", "collect").stdout
    assert "30 samples of 35 rows" in told
    assert "dropped 1: no_target" in told
    assert f"set aside 4 bad rows, with reasons in {tmp_path / 'out' / '_rejects.jsonl'}" in told
    assert len(contents(tmp_path / "out", tmp_path)) == 30


def test_samples_are_cut_to_the_head_and_counted(rows, store, chatml, tmp_path):
    source = write_lines(tmp_path / "chats.jsonl", rows)
    report = render_here(source, tmp_path / "cut", tokenizer=chatml, max_length=40)
    whole = contents(store, tmp_path)
    kept = [(ids[:40], mask[:40]) for ids, mask in whole if any(mask[1:40])]
    assert contents(tmp_path / "cut", tmp_path) == kept
    assert report.dropped == ({"target_cut_off": len(whole) - len(kept)} if len(whole) > len(kept) else {})
    assert report.tokens == sum(len(ids) for ids, _ in kept)
    assert report.cut_tokens == sum(len(ids) - 40 for ids, mask in whole if any(mask[1:40]) and len(ids) > 40)


@pytest.fixture
def bare(chatml, tmp_path) -> Path:
    """A tokenizer by which nothing can be rendered."""
    return Path(shutil.copytree(chatml, tmp_path / "bare", ignore=shutil.ignore_patterns("chat_template.jinja")))


def test_what_a_process_finds_wrong_with_the_tokenizer_is_told_as_it_is(rows, bare, tmp_path):
    (source := tmp_path / "chats").mkdir()
    for part in ("a", "b"):
        write_lines(source / f"{part}.jsonl", rows[:10])
    words = ("--tokenizer", bare, "--processes", 2, "--out", tmp_path / "out")
    refusal = render(source, *words, fails=True)
    assert refusal.stderr.splitlines()[-1].startswith(f"dataserver: the tokenizer in '{bare}' has no chat template")
    assert "Traceback" not in refusal.stderr


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_ray_cluster_gives_the_same_bytes_and_the_same_refusals(rows, store, chatml, bare, tmp_path):
    source = write_lines(tmp_path / "chats.jsonl", rows)
    words = ("--tokenizer", chatml, "--engine", "ray", "--processes", 2)
    render(source, *words, "--out", tmp_path / "again")
    assert digests(tmp_path / "again") == digests(store)
    bad = write_lines(tmp_path / "bad.jsonl", [*rows[:10], {"messages": "hi"}])
    refusal = render(bad, *words, "--out", tmp_path / "bad", fails=True)
    assert "File 'bad.jsonl', row 10: 'messages' is text, not a list of messages." in refusal.stderr
    refusal = render(source, "--tokenizer", bare, *words[2:], "--out", tmp_path / "bare-out", fails=True)
    assert refusal.stderr.splitlines()[-1].startswith(f"dataserver: the tokenizer in '{bare}' has no chat template")


def test_a_store_with_bad_rows_set_aside_is_no_answer_to_who_would_stop_at_them(rows, chatml, tmp_path):
    source, out = write_lines(tmp_path / "chats.jsonl", [*rows[:20], {"messages": []}, *rows[20:40]]), tmp_path / "out"
    assert render_here(source, out, tokenizer=chatml, on_error="collect").rejected == 1
    with pytest.raises(StoreRefusedError, match=r"row 20: its list of messages is empty. It and 0 more bad rows were"):
        render_here(source, out, tokenizer=chatml)
    shutil.rmtree(out)
    with pytest.raises(StoreRefusedError, match=r"File 'chats.jsonl', row 20: its list of messages is empty"):
        render_here(source, out, tokenizer=chatml)
