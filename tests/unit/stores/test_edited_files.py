"""Files that are written to in place and look as if nobody had: same size, time of modification and inode."""

import os

import numpy as np
import pytest

from dataserver.errors import StoreDamagedError
from dataserver.stores import Admission, open_store, shard_rows


def edited(path, old, new):
    """Put `new` in the place of `old`, and set the time of modification back."""
    before = path.stat()
    data = path.read_bytes()
    assert data.count(old) == 1 and len(old) == len(new)
    # Clocks of file systems tick every few milliseconds: written again until the kernel has noted another time.
    while path.stat().st_ctime_ns == before.st_ctime_ns:
        with path.open("r+b") as file:
            file.write(data.replace(old, new))
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = path.stat()
    assert (after.st_size, after.st_mtime_ns, after.st_ino) == (before.st_size, before.st_mtime_ns, before.st_ino)


def ids(*tokens):
    return np.array(tokens, dtype="<i4").tobytes()


@pytest.fixture
def path(one_file, table):
    return one_file(table([[11, 12, 13], [14, 15]]), "arrow_stream")


@pytest.fixture
def lines(tmp_path):
    written = tmp_path / "a.jsonl"
    written.write_text('{"input_ids": [1, 2], "loss_mask": [1, 1]}\n')
    return written


@pytest.mark.parametrize("ask", ["rows", "before_a_seal"])
def test_an_edit_that_hides_itself_is_damage_while_the_store_is_open(path, opened, monkeypatch, ask):
    monkeypatch.setattr(shard_rows, "_CHECK_INTERVAL_S", 0.0)
    store = opened(path)
    assert store[0].input_ids.tolist() == [11, 12, 13]
    edited(path, ids(11, 12, 13), ids(11, 99, 13))
    for _ in range(2):
        with pytest.raises(StoreDamagedError, match=r"its contents are others, though size and modification time"):
            store[0] if ask == "rows" else store.check_unchanged()


def test_an_edit_that_hides_itself_makes_another_store_at_the_next_opening(path, opened):
    before = opened(path)
    edited(path, ids(11, 12, 13), ids(11, 99, 13))
    after = opened(path)
    assert after.fingerprint != before.fingerprint
    assert after[0].input_ids.tolist() == [11, 99, 13]


def test_an_edit_that_breaks_a_rule_is_refused_at_the_next_opening(path, opened):
    opened(path)
    edited(path, ids(14, 15), ids(14, -1))
    with pytest.raises(Exception, match=r"^Row 1: input_ids holds -1, a negative token id"):
        opened(path)


def test_an_edited_file_of_lines_is_another_store(lines, opened):
    assert opened(lines)[0].input_ids.tolist() == [1, 2]
    edited(lines, b"[1, 2]", b"[1, 7]")
    assert opened(lines)[0].input_ids.tolist() == [1, 7]


def test_links_and_permissions_change_no_store(path, opened, index_dir, monkeypatch):
    monkeypatch.setattr(shard_rows, "_CHECK_INTERVAL_S", 0.0)
    store = opened(path)
    before = path.stat().st_ctime_ns
    while path.stat().st_ctime_ns == before:
        path.chmod(0o400)
        path.chmod(0o444)
    store.check_unchanged()
    assert store[1].input_ids.tolist() == [14, 15]
    scanned = []
    again = open_store(path, index_dir=index_dir, progress=lambda *bytes_done: scanned.append(bytes_done))
    assert again.fingerprint == store.fingerprint
    assert scanned == []


def test_contents_are_compared_once_for_a_time(path, opened, index_dir, monkeypatch):
    opened(path)
    before = path.stat().st_ctime_ns
    while path.stat().st_ctime_ns == before:
        path.chmod(0o400)
        path.chmod(0o444)
    opened(path)
    monkeypatch.setattr("dataserver.stores.place.local_digest", lambda *_: pytest.fail("compared again"))
    opened(path)


def test_a_lazily_admitted_store_notices_by_its_ranges(one_file, table, index_dir):
    path = one_file(table([[11, 12, 13], [14, 15]]), "arrow_stream")
    assert open_store(path, index_dir=index_dir, admission=Admission.LAZY)[0].input_ids.tolist() == [11, 12, 13]
    edited(path, ids(11, 12, 13), ids(11, 99, 13))
    store = open_store(path, index_dir=index_dir, admission=Admission.LAZY)
    with pytest.raises(StoreDamagedError, match=r"digest|changed"):
        store.read_rows([0])
