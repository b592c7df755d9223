"""`store render` of input that is cut off, damaged, or written while it is read; and jobs that meet or are cut off."""

import gzip
import json
import os
import shutil
import threading
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from dataserver.errors import InvalidConfigError, StoreRefusedError
from dataserver.render import LocalEngine
from dataserver.render.job import PartReport, Work, job_key, render_store
from dataserver.render.output import REJECTS, REPORT, sweep
from dataserver.render.rows import chunks_of, find_input, rows_of
from dataserver.render_options import render_options
from dataserver.stores import open_store

LINE = b'{"prompt": "one", "completion": "two"}\n'


def ignore(_done: int, _total: int, _report: PartReport) -> None:
    """Tell nobody."""


def nothing_left(_work: Work):
    raise AssertionError("rendered twice")


def render(source: Path, out: Path, tokenizer: Path, engine=None) -> PartReport:
    options = render_options(tokenizer=tokenizer, family="template")
    found = find_input(source)
    key = job_key(found, options)
    return render_store(found, out, options, key=key, engine=engine or LocalEngine(1), progress=ignore)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("cut.jsonl.gz", gzip.compress(LINE * 1000)[:-20]),
        ("plain.jsonl.gz", LINE),
        ("plain.jsonl.zst", LINE),
        ("bad.parquet", b"PAR1junkPAR1"),
        ("bad.arrow", b"ARROW1junk"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_by_name(chatml, tmp_path, name, data):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(StoreRefusedError, match=name):
        render(tmp_path / name, tmp_path / "out", chatml)
    assert not (tmp_path / "out").exists()


def test_a_file_that_is_written_while_it_is_rendered_refuses_the_store(chatml, tmp_path):
    source = tmp_path / "chats.jsonl"
    source.write_bytes(LINE * 4)

    def engine(work: Work):
        # As long as before, and as many rows: nothing but the file's stamp tells.
        source.write_bytes(LINE.replace(b"two", b"six") * 4)
        yield from LocalEngine(1)(work)

    with pytest.raises(StoreRefusedError, match=r"chats.jsonl' changed while it was rendered"):
        render(source, tmp_path / "out", chatml, engine)
    assert not (tmp_path / "out").exists()


def test_a_file_that_is_gone_is_refused_by_name_wherever_it_is_missed(chatml, tmp_path):
    source = tmp_path / "chats.jsonl"
    source.write_bytes(LINE)
    found, options = find_input(source), render_options(tokenizer=chatml, family="template")
    source.unlink()
    for miss in (
        lambda: job_key(found, options),
        lambda: render_store(found, tmp_path / "out", options, key="0", engine=LocalEngine(1), progress=ignore),
    ):
        with pytest.raises(StoreRefusedError, match=r"'chats.jsonl' cannot be read"):
            miss()


def test_a_job_that_ended_while_it_published_renders_nothing_again(chatml, tmp_path):
    source, out = tmp_path / "chats.jsonl", tmp_path / "out"
    source.write_bytes(LINE * 4)
    for stage in ("nothing told", "nothing removed", "all done but the name"):
        report = render(source, out, chatml)
        key = job_key(find_input(source), render_options(tokenizer=chatml, family="template"))
        directory = out.rename(tmp_path / f"out.rendering-{key}")
        if stage != "all done but the name":
            (directory / "part-000000.json").write_text(json.dumps(asdict(report)))
        if stage == "nothing told":
            (directory / REPORT).unlink()
        assert render(source, out, chatml, nothing_left) == report, stage
        assert sorted(path.name for path in out.iterdir()) == [REJECTS, REPORT, "part-000000.arrow"], stage
        shutil.rmtree(out)


def test_marks_of_parts_stay_until_a_store_tells_that_it_is_whole(chatml, tmp_path):
    """Full disks show themselves where something is written: what was rendered is kept."""
    source, out = tmp_path / "chats.jsonl", tmp_path / "out"
    source.write_bytes(LINE)
    key = job_key(find_input(source), render_options(tokenizer=chatml, family="template"))
    in_the_way = tmp_path / f"out.rendering-{key}" / REJECTS
    in_the_way.mkdir(parents=True)
    with pytest.raises(InvalidConfigError, match=r"'.*out' cannot be written"):
        render(source, out, chatml)
    in_the_way.rmdir()
    assert render(source, out, chatml, nothing_left).samples == 1


def test_reading_tells_how_far_it_is_within_a_file(chatml, tmp_path):
    (tmp_path / "chats.jsonl").write_bytes(LINE * 80_000)
    (tmp_path / "more.jsonl.gz").write_bytes(gzip.compress(os.urandom(2_000_000).hex().encode() + b"\n"))
    found = find_input(tmp_path)
    total = sum(path.stat().st_size for path in tmp_path.iterdir())
    options = render_options(tokenizer=chatml)
    for read in (lambda tell: job_key(found, options, progress=tell), partial(chunks_of, found)):
        told: list[tuple[int, int]] = []
        read(lambda *figures, told=told: told.append(figures))
        assert [done for done, _ in told] == sorted(done for done, _ in told)
        assert len({done for done, _ in told}) >= 5
        assert told[-1] == (total, total)


def test_who_comes_second_waits_and_finds_the_store(chatml, tmp_path):
    source = tmp_path / "chats.jsonl"
    source.write_bytes(LINE * 4)

    second = threading.Thread(target=render, args=(source, tmp_path / "out", chatml, nothing_left))

    def engine(work: Work):
        second.start()
        yield from LocalEngine(1)(work)

    report = render(source, tmp_path / "out", chatml, engine)
    second.join()
    with open_store(tmp_path / "out", index_dir=tmp_path / "index") as store:
        assert len(store) == report.samples == 4
    assert sorted(path.name for path in tmp_path.iterdir()) == ["chats.jsonl", "index", "out"]


def test_one_row_that_is_nested_without_end_is_set_aside(chatml, tmp_path):
    deep = {"prompt": "a", "completion": "b", "tools": "[" * 100_000}
    (tmp_path / "chats.jsonl").write_bytes(json.dumps(deep).encode() + b"\n" + LINE)
    options = render_options(tokenizer=chatml, family="template", on_error="collect")
    found = find_input(tmp_path / "chats.jsonl")
    key = job_key(found, options)
    report = render_store(found, tmp_path / "out", options, key=key, engine=LocalEngine(1), progress=ignore)
    assert (report.samples, report.rejected) == (1, 1)


def test_what_is_held_is_written_when_it_is_a_batch(chatml, tmp_path, monkeypatch):
    monkeypatch.setattr("dataserver.render.part._BATCH_TOKENS", 200)
    (tmp_path / "chats.jsonl").write_bytes(LINE * 100)
    render(tmp_path / "chats.jsonl", tmp_path / "out", chatml)
    [part] = (tmp_path / "out").glob("*.arrow")
    with pa.ipc.open_stream(part) as reader:
        sizes = [(batch.num_rows, len(batch.column(0).values)) for batch in reader]
    assert sum(rows for rows, _ in sizes) == 100
    assert len(sizes) > 1
    assert max(tokens for _, tokens in sizes) < 300


@pytest.mark.parametrize("suffix", ["gz", "zst"])
def test_a_compressed_file_is_rendered_in_chunks_that_hold_every_line_once(tmp_path, suffix):
    lines = [json.dumps({"prompt": f"{n} " + "x" * (n % 700), "completion": "y"}).encode() + b"\n" for n in range(4000)]
    data = b"".join(lines)
    compressed = gzip.compress(data) if suffix == "gz" else pa.compress(data, codec="zstd", asbytes=True)
    (tmp_path / f"chats.jsonl.{suffix}").write_bytes(compressed)
    found = find_input(tmp_path / f"chats.jsonl.{suffix}")
    chunks = chunks_of(found)
    assert len(chunks) > 4
    rows = [row for chunk in chunks for row in rows_of(found, chunk)]
    assert [row.number for row in rows] == list(range(4000))
    assert [row.value["prompt"].split()[0] for row in rows] == [str(n) for n in range(4000)]


def test_work_that_was_given_up_is_removed_and_work_that_goes_on_is_not(tmp_path):
    for name, age_s in (("old", 15 * 86400), ("new", 86400)):
        work = tmp_path / f"{name}.rendering-0123"
        work.mkdir()
        (work / "part-000000.arrow").write_bytes(b"")
        for path in (work / "part-000000.arrow", work):
            os.utime(path, (time.time() - age_s,) * 2)
    (tmp_path / "store").mkdir()
    os.utime(tmp_path / "store", (0, 0))
    sweep(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new.rendering-0123", "store"]


def test_work_that_another_process_takes_away_meanwhile_ends_no_sweep(tmp_path):
    """Links to nothing stand for what is gone between two looks."""
    (tmp_path / "taken.rendering-0123").symlink_to(tmp_path / "nothing")
    (tmp_path / "other.rendering-0123").mkdir()
    (tmp_path / "other.rendering-0123" / "part-000000.arrow").symlink_to(tmp_path / "nothing")
    (tmp_path / "old.rendering-0123").mkdir()
    os.utime(tmp_path / "old.rendering-0123", (0, 0))
    sweep(tmp_path)
    assert sorted(path.name for path in tmp_path.glob("*")) == ["other.rendering-0123", "taken.rendering-0123"]
