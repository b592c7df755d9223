"""The Arrow copies of JSON Lines are derived data: deleted, damaged or outdated, they come back or are never read."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest

from dataserver.errors import InvalidConfigError, StoreDamagedError
from dataserver.stores import LossMask, copies, json_copy, open_store

ROWS = [[number, number + 1, number + 2] for number in range(50)]


@pytest.fixture
def store_path(tmp_path):
    path = tmp_path / "chats"
    path.mkdir()
    for shard, rows in enumerate((ROWS[:20], ROWS[20:])):
        lines = (json.dumps({"input_ids": row, "loss_mask": [0, 1, 1]}) for row in rows)
        (path / f"part-{shard}.jsonl").write_text("\n".join(lines))
    return path


@pytest.fixture
def conversions(monkeypatch):
    """The files that were converted, in order."""
    found = []
    original = json_copy.write_copy

    def write_copy(source, *rest):
        found.append(source.name)
        return original(source, *rest)

    monkeypatch.setattr(json_copy, "write_copy", write_copy)
    return found


def tokens(store):
    return [row.input_ids.tolist() for row in store]


def copied_files(index_dir):
    return sorted((index_dir / "copies").glob("*/rows.arrow"))


def test_files_in_a_storage_are_served_through_copies_too(store_path, index_dir, opened):
    url = f"file://{store_path}"
    for _ in ("cold", "warm"):
        store = open_store(url, index_dir=index_dir)
        assert tokens(store) == ROWS
    assert store.fingerprint == opened(store_path).fingerprint, "wherever it lies"
    shutil.rmtree(index_dir / "copies")
    assert tokens(open_store(url, index_dir=index_dir)) == ROWS


def test_each_file_is_converted_once(opened, store_path, conversions):
    for _ in range(3):
        assert tokens(opened(store_path)) == ROWS
    assert conversions == ["part-0.jsonl", "part-1.jsonl"]


def test_equal_files_share_a_copy_wherever_they_lie(opened, store_path, tmp_path, conversions):
    opened(store_path)
    assert tokens(opened(shutil.copytree(store_path, tmp_path / "moved"))) == ROWS
    assert len(conversions) == 2


def test_the_mask_is_part_of_a_copys_name(opened, store_path, index_dir):
    assert opened(store_path).fingerprint != opened(store_path, LossMask.ALL).fingerprint
    assert len(copied_files(index_dir)) == 4


def test_a_copy_that_was_deleted_is_made_again_at_the_next_opening(opened, store_path, index_dir, conversions):
    opened(store_path)
    shutil.rmtree(index_dir / "copies")
    assert tokens(opened(store_path)) == ROWS
    assert len(conversions) == 4


def test_a_copy_that_is_deleted_under_an_open_store_is_made_again_when_it_is_read(opened, store_path, index_dir):
    store = opened(store_path)
    shutil.rmtree(index_dir)
    assert tokens(store) == ROWS
    shutil.rmtree(index_dir)
    assert tokens(store) == ROWS, "what is mapped stays"


@pytest.mark.parametrize("damage", ["flipped", "cut"])
def test_a_damaged_copy_is_made_again(opened, store_path, index_dir, damage):
    opened(store_path)
    for path in copied_files(index_dir):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data if damage == "flipped" else data[:-8])
    assert tokens(opened(store_path)) == ROWS


def test_positions_are_never_read_in_a_copy_that_came_out_otherwise(opened, store_path, index_dir, monkeypatch):
    """Another version of the code, or of Arrow, may lay out the same rows in other bytes."""
    store = opened(store_path)
    before = store.fingerprint
    shutil.rmtree(index_dir / "copies")
    monkeypatch.setattr(json_copy, "BATCH_TOKENS", 8)
    with pytest.raises(StoreDamagedError, match="comes out otherwise now"):
        store[0]
    again = opened(store_path)
    assert tokens(again) == ROWS
    assert again.fingerprint == before, "the files are the same"


def test_a_file_that_changes_while_it_is_served_is_damage(opened, store_path):
    store = opened(store_path)
    (store_path / "part-0.jsonl").write_text("{}")
    with pytest.raises(StoreDamagedError, match=r"'part-0\.jsonl' in .* changed after it was admitted"):
        store.check_unchanged()


def test_a_conversion_that_was_interrupted_leaves_nothing_that_is_taken_for_a_copy(
    opened, store_path, index_dir, monkeypatch
):
    def interrupted(source, path, *rest):
        path.write_bytes(b"half of it")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(json_copy, "write_copy", interrupted)
        with pytest.raises(KeyboardInterrupt):
            opened(store_path)
    assert [path.name for path in index_dir.iterdir()] == []
    assert tokens(opened(store_path)) == ROWS


def test_a_full_disk_is_a_fault_of_the_index_directory(opened, store_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(json_copy, "write_copy", full)
    with pytest.raises(InvalidConfigError, match="No space left on device"):
        opened(store_path)


def test_many_openings_at_once_agree(store_path, tmp_path):
    with ThreadPoolExecutor(4) as pool:
        stores = list(pool.map(lambda _: open_store(store_path, index_dir=tmp_path / "index"), range(8)))
    assert all(tokens(store) == ROWS for store in stores)
    assert not list((tmp_path / "index").glob(".building-*"))


def test_a_new_version_of_the_copies_reads_none_of_the_old(opened, store_path, index_dir, monkeypatch, conversions):
    opened(store_path)
    monkeypatch.setattr(copies, "COPY_VERSION", copies.COPY_VERSION + 1)
    assert tokens(opened(store_path)) == ROWS
    assert len(conversions) == 4


def test_progress_goes_through_every_byte_twice(store_path, tmp_path):
    seen = []
    open_store(store_path, index_dir=tmp_path / "index", progress=lambda done, total: seen.append((done, total)))
    size = sum(path.stat().st_size for path in store_path.iterdir())
    assert seen == sorted(seen)
    assert seen[-1] == (2 * size, 2 * size)
