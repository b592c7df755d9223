"""Shards that are mapped jointly: read as one, kept as long as anything looks at them, and no longer."""

import gc
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from dataserver.errors import StoreDamagedError
from dataserver.stores import open_store
from dataserver.stores.joint_map import map_jointly
from dataserver.stores.manifest import Manifest
from dataserver.stores.neighbours import neighbours_of

MAPS, DESCRIPTORS = Path("/proc/self/maps"), Path("/proc/self/fd")
on_linux = pytest.mark.skipif(not MAPS.exists(), reason="asks /proc")


@pytest.fixture
def files(tmp_path):
    """Three files, the middle one longer than a page."""
    contents = [b"first", bytes(range(256)) * 40, b"last"]
    for number, content in enumerate(contents):
        (tmp_path / f"{number}.bin").write_bytes(content)
    return [(tmp_path / f"{number}.bin", len(content)) for number, content in enumerate(contents)]


def write_shard(path: Path, rows: list[list[int]], width: pa.DataType, compression: str | None = None) -> None:
    ids = pa.array(rows, pa.list_(width))
    mask = pa.array([[1] * len(row) for row in rows], pa.list_(pa.int8()))
    table = pa.table({"input_ids": ids, "loss_mask": mask})
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=2)


def test_every_file_lies_where_it_is_said_to_begin(files):
    data, begins = map_jointly(files)
    for (path, size), begin in zip(files, begins.tolist(), strict=True):
        assert bytes(data[begin : begin + size]) == path.read_bytes()
    assert data.readonly


def test_a_view_keeps_the_maps_alive(files):
    data, begins = map_jointly(files)
    view = np.frombuffer(data, np.uint8)[begins[1] : begins[1] + 256]
    del data
    gc.collect()
    assert view.tolist() == list(range(256))


def opened(folder: str) -> int:
    """Descriptors of files in `folder`: others open and close theirs meanwhile."""
    return sum(folder in os.path.realpath(link) for link in DESCRIPTORS.iterdir())


@on_linux
def test_an_open_store_and_its_views_keep_no_file_open(tmp_path):
    write_shard(tmp_path / "shard.arrow", [[7], [1, 2, 3, 4], [5, 6], [1, 2, 3]], pa.int32())
    with open_store(tmp_path / "shard.arrow", index_dir=tmp_path / "index") as store:
        views = [store.view(max_length) for max_length in (2, 3, 4)]
        lengths = [view.lengths(np.arange(view.rows)).tolist() for view in views]
        assert lengths == [[2, 2, 2], [3, 2, 3], [4, 2, 3]]
        assert opened(str(tmp_path)) == 0


@on_linux
def test_maps_go_with_the_last_view_and_no_file_stays_open(files):
    folder = str(files[0][0].parent)

    def mapped() -> int:
        return sum(folder in line for line in MAPS.read_text().splitlines())

    data, _ = map_jointly(files)
    piece = data[:5]
    del data
    gc.collect()
    assert (mapped(), opened(folder)) == (3, 0)
    del piece
    gc.collect()
    assert mapped() == 0


def test_a_file_of_another_size_is_damage_before_it_is_touched(files):
    path, size = files[1]
    os.truncate(path, size - 1)
    with pytest.raises(StoreDamagedError, match=f"had {size} bytes when it was admitted and has {size - 1}"):
        map_jointly(files)


def test_shards_that_lie_differently_are_no_neighbours(tmp_path):
    store_path = tmp_path / "store"
    store_path.mkdir()
    rows = [[number * 10 + at for at in range(3 + number % 2)] for number in range(24)]
    kinds = [(pa.int32(), None), (pa.int32(), None), (pa.int64(), None), (pa.int32(), "lz4"), (pa.int32(), None)]
    for shard, (width, compression) in enumerate(kinds):
        write_shard(store_path / f"{shard}.arrow", rows[shard * 5 : shard * 5 + 5], width, compression)
    with open_store(store_path, index_dir=tmp_path / "index") as store:
        (manifest,) = (tmp_path / "index" / "manifests").iterdir()
        found = neighbours_of(Manifest.from_json(manifest.read_text()).shards)
        assert [(each.begin, each.end, each.layout is not None) for each in found] == [
            (0, 2, True),
            (2, 3, True),
            (3, 4, False),
            (4, 5, True),
        ]
        wanted = np.random.default_rng(1).permutation(24)
        assert [row.input_ids.tolist() for row in store.read_rows(wanted)] == [rows[number] for number in wanted]
