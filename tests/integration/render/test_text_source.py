"""Conversations of a server become the store that rendering them ahead of time would have given, once."""

import threading
from pathlib import Path

import pytest
from textlab import ROWS, eventually, write_lines

from dataserver.config import StoreConfig, parse_config
from dataserver.errors import InvalidConfigError, StoreRefusedError
from dataserver.render import LocalEngine, rendered
from dataserver.render.job import job_key, render_store
from dataserver.render.output import locked
from dataserver.render.pace import SharedProgress
from dataserver.render.rows import find_input
from dataserver.render.source import lock_of
from dataserver.render_options import RenderOptions
from dataserver.stores import open_store
from dataserver.wire.store_info import RenderingInfo


def render(path: Path | str, tokenizer: Path, index_dir: Path, told: list | None = None, **options: object) -> Path:
    told = [] if told is None else told
    settings = RenderOptions(tokenizer=tokenizer, **options)
    return rendered(path, settings, index_dir, storage_options={}, progress=told.append)


def bytes_of(store: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(store.glob("*.arrow"))]


def test_conversations_are_the_store_that_rendering_ahead_gives(chatml, tmp_path):
    source = write_lines(tmp_path / "chats.jsonl", ROWS)
    told: list[RenderingInfo] = []
    here = render(source, chatml, tmp_path / "index", told)
    options, found = RenderOptions(tokenizer=chatml), find_input(source)
    render_store(
        found, tmp_path / "ahead", options,
        key=job_key(found, options), engine=LocalEngine(1), progress=lambda *_: None,
    )  # fmt: skip
    with (
        open_store(tmp_path / "ahead", index_dir=tmp_path / "other") as ahead,
        open_store(here, index_dir=tmp_path / "index") as store,
    ):
        assert store.fingerprint == ahead.fingerprint
    assert bytes_of(tmp_path / "ahead") == bytes_of(here)
    stages = [info.stage for info in told]
    assert stages == sorted(stages, key=["reading", "rendering", "checking"].index)


def test_another_tokenizer_option_or_row_is_another_store(chatml, tmp_path):
    source = write_lines(tmp_path / "chats.jsonl", ROWS)
    first = render(source, chatml, tmp_path)
    assert render(source, chatml, tmp_path) == first
    assert render(source, chatml, tmp_path, roles=["assistant", "user"]) != first
    write_lines(source, ROWS[1:])
    assert render(source, chatml, tmp_path) != first


def test_conversations_behind_a_url_are_brought_here_first(chatml, tmp_path):
    (tmp_path / "chats").mkdir()
    write_lines(tmp_path / "chats" / "a.jsonl", ROWS)
    told: list[RenderingInfo] = []
    near = render(tmp_path / "chats", chatml, tmp_path / "near")
    far = render(f"file://{tmp_path / 'chats'}", chatml, tmp_path / "far", told)
    assert near.name == far.name, "a job is named by what it reads and not by where that lies"
    assert bytes_of(near) == bytes_of(far)
    assert told[0].stage == "fetching"


def test_who_waits_for_another_process_knows_how_far_that_is_and_finds_its_store(chatml, tmp_path):
    source = write_lines(tmp_path / "chats.jsonl", ROWS)
    lock = lock_of(source, RenderOptions(tokenizer=chatml), tmp_path / "index")
    lock.parent.mkdir(parents=True)
    far = RenderingInfo(stage="rendering", done=3, total=10, rows=1200)
    told: list[RenderingInfo] = []
    found: list[Path] = []
    waiting = threading.Thread(target=lambda: found.append(render(source, chatml, tmp_path / "index", told)))
    with locked(lock):
        waiting.start()
        eventually(lambda: RenderingInfo(stage="waiting") in told)
        shared = SharedProgress(lock.with_suffix(".progress"))
        shared.write(far)
        eventually(lambda: far in told)
        shared.close()
        assert not found
    waiting.join()
    assert found == [render(source, chatml, tmp_path / "index")]
    assert not list(lock.parent.glob("source-*")), "nobody leaves a lock or progress behind"


def test_a_bad_row_refuses_the_store_by_file_and_row(chatml, tmp_path):
    source = write_lines(tmp_path / "chats.jsonl", [*ROWS, {"messages": []}])
    with pytest.raises(StoreRefusedError, match=r"File 'chats.jsonl', row 40: its list of messages is empty"):
        render(source, chatml, tmp_path)


def test_a_mask_is_asked_for_in_one_place(chatml):
    with pytest.raises(InvalidConfigError, match=r"`render\.roles` says what is a target"):
        parse_config({"stores": {"chat": {"path": "x", "loss_mask": "all", "render": {"tokenizer": str(chatml)}}}})
    assert StoreConfig(path="x").render is None
