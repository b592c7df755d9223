"""What of an index is removed when nobody opened it for long."""

import os
import time

import pytest

from dataserver.cli.main import main
from dataserver.stores import Admission, open_store
from dataserver.stores.index_use import prune

LONG_AGO = 1_000_000_000


@pytest.fixture
def stores(tmp_path, write, table, index_dir):
    """Functions that open a store of rows, one of lines, and one lazily, each with an order."""
    rows = write(tmp_path / "rows", table([[1, 2, 3], [4, 5]]), "parquet")
    lines = tmp_path / "lines.jsonl"
    lines.write_text('{"input_ids": [1, 2], "loss_mask": [1, 1]}\n')
    return {
        "rows": lambda: open_store(rows, index_dir=index_dir).view(2),
        "lines": lambda: open_store(lines, index_dir=index_dir).view(2),
        "lazy": lambda: open_store(rows, index_dir=index_dir, admission=Admission.LAZY).view(2),
    }


def age(index_dir):
    for kind in index_dir.iterdir():
        for path in kind.iterdir():
            os.utime(path, (LONG_AGO, LONG_AGO))


def names(entries, index_dir):
    return {entry.path.relative_to(index_dir).as_posix() for entry in entries}


@pytest.mark.parametrize("kept", ["rows", "lines", "lazy"])
def test_what_was_opened_stays_and_the_rest_goes(stores, index_dir, kept):
    stores[kept]()
    mine = {path.relative_to(index_dir).as_posix() for path in index_dir.glob("*/*")}
    for name in stores.keys() - {kept}:
        stores[name]()
    age(index_dir)
    stores[kept]()
    removed, left = prune(index_dir, older_than=time.time() - 3600)
    assert names(left, index_dir) == mine
    assert not names(removed, index_dir) & mine
    assert {path.relative_to(index_dir).as_posix() for path in index_dir.glob("*/*")} == mine


def test_what_went_is_built_anew_and_readers_go_on(stores, index_dir):
    views = {name: open_one() for name, open_one in stores.items()}
    prune(index_dir, older_than=time.time() + 3600)
    assert not list(index_dir.glob("*/*"))
    assert views["rows"].store[0].input_ids.tolist() == [1, 2, 3]
    assert {name: open_one().rows for name, open_one in stores.items()} == {"rows": 2, "lines": 1, "lazy": 2}


def test_rendered_stores_and_what_is_being_built_stay(tmp_path, index_dir):
    for left in (index_dir / "rendered" / "x", index_dir / ".building-1-x"):
        left.mkdir(parents=True)
    assert prune(index_dir, older_than=time.time() + 3600) == ([], [])
    assert (index_dir / "rendered" / "x").is_dir()
    assert (index_dir / ".building-1-x").is_dir()


def test_the_command_says_what_went_and_what_is_left(stores, index_dir, capsys):
    stores["rows"]()
    assert main(["store", "prune", "--index-dir", str(index_dir)]) == 0
    assert "removed  0 entries" in capsys.readouterr().out
    age(index_dir)
    assert main(["store", "prune", "--index-dir", str(index_dir), "--unused-days", "30"]) == 0
    said = capsys.readouterr().out
    assert "last opened on 2001-09-09" in said
    assert f"left     0 entries, 0 bytes, in {index_dir}" in said
