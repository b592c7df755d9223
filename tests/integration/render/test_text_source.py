"""A server that is given conversations serves the samples that rendering them ahead of time would have given."""

import json
from pathlib import Path

import pytest

from dataserver.config import StoreConfig, parse_config
from dataserver.errors import InvalidConfigError, StoreRefusedError
from dataserver.render import rendered
from dataserver.render_options import RenderOptions
from dataserver.stores import open_store
from dataserver.streaming.catalog import open_catalog

ROWS = [
    {"messages": [{"role": "user", "content": f"question {n}"}, {"role": "assistant", "content": f"answer {n}"}]}
    for n in range(40)
]


def write_lines(path: Path, rows: list) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def config_of(directory: Path, source: Path, tokenizer: Path, **render: object):
    store = {"path": str(source), "render": {"tokenizer": str(tokenizer), **render}}
    return parse_config({"stores": {"chat": store}, "index_dir": str(directory / "indexes"), "disk_cache_bytes": 0})


def test_conversations_are_served_as_the_store_that_they_render_to(chatml, tmp_path):
    source = write_lines(tmp_path / "chats.jsonl", ROWS)
    told = []
    config = config_of(tmp_path, source, chatml)
    catalog = open_catalog(config, progress=lambda name, done, total: told.append((name, done, total)))
    store = catalog.get("chat")
    options = RenderOptions(tokenizer=chatml)
    ahead = rendered(source, options, tmp_path / "ahead", storage_options={}, progress=lambda *_: None)
    with open_store(ahead, index_dir=tmp_path / "other") as same:
        assert store.fingerprint == same.fingerprint
        assert [row.input_ids.tolist() for row in store] == [row.input_ids.tolist() for row in same]
    assert len(store) == len(ROWS)
    assert told[0][:2] == ("chat", 0)
    catalog.close()


def test_another_tokenizer_option_or_row_is_another_store(chatml, tmp_path):
    source = write_lines(tmp_path / "chats.jsonl", ROWS)

    def fingerprint(**render):
        catalog = open_catalog(config_of(tmp_path, source, chatml, **render))
        try:
            return catalog.get("chat").fingerprint
        finally:
            catalog.close()

    first = fingerprint()
    assert fingerprint() == first
    assert fingerprint(roles=["assistant", "user"]) != first
    write_lines(source, ROWS[1:])
    assert fingerprint() != first


def test_conversations_behind_a_url_are_brought_here_first(chatml, tmp_path):
    (tmp_path / "chats").mkdir()
    write_lines(tmp_path / "chats" / "a.jsonl", ROWS[:20])
    write_lines(tmp_path / "chats" / "b.jsonl", ROWS[20:])
    options = RenderOptions(tokenizer=chatml)
    near, far = (
        rendered(source, options, tmp_path / name, storage_options={}, progress=lambda *_: None)
        for name, source in (("near", tmp_path / "chats"), ("far", f"file://{tmp_path / 'chats'}"))
    )
    assert near.name == far.name, "a job is named by what it reads and not by where that lies"
    assert [path.read_bytes() for path in sorted(near.glob("*.arrow"))] == [
        path.read_bytes() for path in sorted(far.glob("*.arrow"))
    ]


def test_a_bad_row_refuses_the_store_by_file_and_row(chatml, tmp_path):
    source = write_lines(tmp_path / "chats.jsonl", [*ROWS, {"messages": []}])
    with pytest.raises(StoreRefusedError, match=r"File 'chats.jsonl', row 40: its list of messages is empty"):
        open_catalog(config_of(tmp_path, source, chatml))


def test_a_mask_is_asked_for_in_one_place(chatml):
    with pytest.raises(InvalidConfigError, match=r"`render\.roles` says what is a target"):
        parse_config({"stores": {"chat": {"path": "x", "loss_mask": "all", "render": {"tokenizer": str(chatml)}}}})
    assert StoreConfig(path="x").render is None
