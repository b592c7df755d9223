"""Arrow files by polars, whose streams have no head, are read by their footers and as strictly as others."""

import random

import polars
import pyarrow as pa
import pytest

from dataserver.errors import StoreRefusedError
from dataserver.stores import open_store
from dataserver.stores.arrow_footer import lacks_head

IDS = [[number, number + 70_000][: number % 3] for number in range(25)]
MASKS = [[0, 1][: number % 3] for number in range(25)]
DAMAGES = 80


@pytest.fixture
def write_ipc(tmp_path):
    def write(compression="uncompressed", name="rows.arrow", ids=IDS, masks=MASKS, **side):
        kinds = {"input_ids": polars.List(polars.Int32), "loss_mask": polars.List(polars.Int8)}
        side = side or {
            "text": ["some text"] * len(ids),
            "kind": polars.Series(["a"] * len(ids), dtype=polars.Categorical),
        }
        frame = polars.DataFrame(side | {"input_ids": ids, "loss_mask": masks}, schema_overrides=kinds)
        frame.write_ipc(tmp_path / name, compression=compression, record_batch_size=10)
        return tmp_path / name

    return write


def refusal(opened, path):
    with pytest.raises(StoreRefusedError) as caught:
        opened(path)
    return caught.value.message


@pytest.mark.parametrize("compression", ["uncompressed", "lz4", "zstd"])
def test_rows_are_served_as_they_were_written_and_from_the_map_where_they_can_be(opened, write_ipc, compression):
    path = write_ipc(compression)
    assert lacks_head(pa.py_buffer(path.read_bytes()), 8), "what this file is about"
    for _ in ("cold", "warm"):
        store = opened(path)
        assert [row.input_ids.tolist() for row in store] == IDS
        assert [row.loss_mask.tolist() for row in store] == MASKS
        assert (store.shards[0].layout is not None) == (compression == "uncompressed")


def test_from_a_storage_such_a_file_is_refused_by_its_cause(write_ipc, index_dir):
    with pytest.raises(StoreRefusedError, match="or written by polars, whose Arrow files"):
        open_store(f"file://{write_ipc()}", index_dir=index_dir)


def test_the_form_of_streams_is_like_that_of_others(opened, tmp_path):
    kinds = {"input_ids": polars.List(polars.Int32), "loss_mask": polars.List(polars.Int8)}
    polars.DataFrame({"input_ids": IDS, "loss_mask": MASKS}, schema=kinds).write_ipc_stream(tmp_path / "a.arrow")
    assert [row.input_ids.tolist() for row in opened(tmp_path / "a.arrow")] == IDS


def test_files_without_rows_and_without_side_columns_are_shards_too(opened, tmp_path, write_ipc):
    store = tmp_path / "store"
    store.mkdir()
    for number, ids in enumerate(([], [[1, 2]], [], [[3]])):
        write_ipc(name=f"store/{number}.arrow", ids=ids, masks=[[1] * len(row) for row in ids], side=[0] * len(ids))
    assert [row.input_ids.tolist() for row in opened(store)] == [[1, 2], [3]]


def test_a_fault_is_named_by_batch_and_row(opened, write_ipc):
    masks = [*MASKS[:20], [0, 1, 1], *MASKS[21:]]
    message = refusal(opened, write_ipc(masks=masks))
    assert message.startswith("Row 20: loss_mask length (3) must equal len(input_ids) (2).")
    assert "(shard 'rows.arrow', record batch 2, row 20 of the shard, column 'loss_mask')" in message


@pytest.mark.parametrize("compression", ["uncompressed", "zstd"])
def test_a_file_that_was_cut_or_continued_is_refused(opened, write_ipc, compression):
    path = write_ipc(compression)
    whole = path.read_bytes()
    for end in (0, 8, 100, len(whole) // 2, len(whole) - 7, len(whole) - 1):
        path.write_bytes(whole[:end])
        assert "Shard 'rows.arrow'" in refusal(opened, path), end
    for rest in (b"\0", whole):
        path.write_bytes(whole + rest)
        assert "Shard 'rows.arrow'" in refusal(opened, path)


@pytest.mark.parametrize("compression", ["uncompressed", "zstd"])
def test_a_damaged_file_is_refused_or_read_and_nothing_else(opened, write_ipc, compression):
    path = write_ipc(compression)
    whole = path.read_bytes()
    rng = random.Random(compression)
    refusals = []
    for _ in range(DAMAGES):
        data = bytearray(whole)
        data[rng.randrange(len(data))] = rng.choice([0, 1, 127, 128, 255])
        path.write_bytes(data)
        try:
            store = opened(path)
            assert len(list(store)) == store.rows
        except StoreRefusedError as error:
            refusals.append(error.message)
    assert len(refusals) > DAMAGES // 8
    assert [message for message in refusals if "rows.arrow" not in message] == []
