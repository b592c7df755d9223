"""Files and folders: what is data, in which order, and what is refused rather than half read."""

import json
import os
import pickle

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dataserver.config import ServerConfig
from dataserver.errors import InvalidConfigError, StoreNotFoundError, StoreRefusedError
from dataserver.stores import open_store
from dataserver.stores.discovery import natural_key
from dataserver.streaming.catalog import open_catalog

ROWS = [[number, number + 1] for number in range(40)]


def refusal(opened, path):
    with pytest.raises(StoreRefusedError) as caught:
        opened(path)
    return caught.value.message


def first_tokens(store):
    return [int(row.input_ids[0]) for row in store]


def message_ends(path):
    """Where each message of an Arrow stream ends."""
    source = pa.BufferReader(path.read_bytes())
    reader, ends = pa.ipc.MessageReader.open_stream(source), []
    while True:
        try:
            reader.read_next_message()
        except StopIteration:
            return ends
        ends.append(source.tell())


def test_shards_are_ordered_naturally_by_their_whole_paths():
    names = ["b/chunk-10.arrow", "b/chunk-2.arrow", "a10/x", "a9/x", "chunk-1", "chunk-01", "Chunk-1", "a", "a/b"]
    expected = ["Chunk-1", "a", "a9/x", "a10/x", "a/b", "b/chunk-2.arrow", "b/chunk-10.arrow", "chunk-01", "chunk-1"]
    assert sorted(names, key=natural_key) == expected
    assert sorted(expected, key=natural_key, reverse=True) == expected[::-1]


def test_rows_are_counted_in_the_order_of_the_shards_whenever_they_were_written(opened, tmp_path, write, table, form):
    directory = tmp_path / "store"
    (directory / "part-b").mkdir(parents=True)
    (directory / "part-a").mkdir()
    for token, name in ((4, "part-b/chunk-10"), (3, "part-b/chunk-9"), (1, "part-a/chunk-2"), (2, "part-a/chunk-11")):
        write(directory / name, table([[token, token]]), form)
    assert first_tokens(opened(directory)) == [1, 2, 3, 4]


def test_what_is_no_data_is_ignored_and_listed(opened, tmp_path, write, table):
    directory = tmp_path / "store"
    (directory / ".cache").mkdir(parents=True)
    (directory / "_logs").mkdir()
    write(directory / "a", table([[1, 2]]), "parquet")
    write(directory / "_logs" / "b", table([[3, 4]]), "parquet")
    names = ("_SUCCESS", ".a.parquet", "_metadata", "x.parquet.crc", "y.parquet.tmp", "README.md", "dataset_info.json")
    for name in names:
        (directory / name).write_bytes(b"no data")
    store = opened(directory)
    assert first_tokens(store) == [1]
    reasons = {entry.path: entry.reason for entry in store.ignored}
    assert set(reasons) == {*names, ".cache/", "_logs/"}
    assert reasons["dataset_info.json"] == "JSON side file"


def test_a_suffix_in_capitals_is_known(opened, tmp_path, write, table):
    path = write(tmp_path / "a", table([[1, 2]]), "parquet")
    assert first_tokens(opened(path.rename(tmp_path / "A.PARQUET"))) == [1]


def test_file_and_stream_are_told_apart_by_their_first_bytes(opened, tmp_path, write, table):
    path = write(tmp_path / "a", table([[1, 2]]), "arrow_stream")
    assert first_tokens(opened(path.rename(tmp_path / "a.feather"))) == [1]


@pytest.mark.parametrize("name", ["data.pq", "shard.arrow.bak", "weights.safetensors"])
def test_a_strange_file_is_refused_and_not_passed_over(opened, tmp_path, write, table, name):
    directory = tmp_path / "store"
    directory.mkdir()
    write(directory / "a", table([[1, 2]]), "parquet")
    (directory / name).write_bytes(b"?")
    assert refusal(opened, directory).startswith(f"'{name}' in '{directory}' is no data file that is known")


def test_a_store_has_one_format(opened, tmp_path, write, table):
    directory = tmp_path / "store"
    directory.mkdir()
    write(directory / "b", table([[1, 2]]), "parquet")
    write(directory / "a", table([[1, 2]]), "arrow_file")
    assert "mixes formats: 'a.arrow' is arrow, 'b.parquet' is parquet" in refusal(opened, directory)


def test_nothing_there_and_nothing_in_it_are_said(opened, tmp_path):
    with pytest.raises(StoreNotFoundError, match="there is no such file or directory"):
        opened(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    assert "no data files" in refusal(opened, tmp_path / "empty")


def test_a_pipe_is_told_from_nothing_and_nobody_waits_for_it(opened, tmp_path):
    os.mkfifo(tmp_path / "rows.arrow")
    assert "is a pipe or a device: give a file of rows" in refusal(opened, tmp_path / "rows.arrow")


def test_links_to_files_are_followed_and_shown_where_they_lead_out(opened, tmp_path, write, table):
    directory = tmp_path / "store"
    directory.mkdir()
    inside = write(directory / "a", table([[1, 2]]), "parquet")
    outside = write(tmp_path / "blob", table([[5, 6]]), "parquet")
    (directory / "b.parquet").symlink_to(outside)
    (directory / "c.parquet").symlink_to(inside)
    store = opened(directory)
    assert first_tokens(store) == [1, 5, 1]
    assert store.links == (("b.parquet", str(outside)),)


def test_a_link_to_a_directory_is_refused(opened, tmp_path, write, table):
    directory = tmp_path / "store"
    directory.mkdir()
    write(directory / "a", table([[1, 2]]), "parquet")
    (directory / "loop").symlink_to(directory)
    assert "'loop' in" in refusal(opened, directory)


def test_files_and_blocks_without_rows_stand_anywhere(opened, tmp_path, write, table, form):
    directory = tmp_path / "store"
    directory.mkdir()
    empty = table([], [])
    for number, part in enumerate((empty, table([[1, 1]]), empty, empty, table([[2, 2]]), empty)):
        write(directory / f"chunk-{number}", part, form)
    store = opened(directory)
    assert first_tokens(store) == [1, 2]
    assert [shard.rows for shard in store.shards] == [0, 1, 0, 0, 1, 0]


def test_batches_without_rows_stand_anywhere_in_a_file(opened, tmp_path, table):
    parts = [table([], []), table([[1, 1]]), table([], []), table([[2, 2], [3, 3]]), table([], [])]
    path = tmp_path / "a.arrow"
    with pa.ipc.new_stream(path, parts[0].schema) as writer:
        for part in parts:
            writer.write_batch(part.to_batches()[0] if part.num_rows else pa.RecordBatch.from_pylist([], part.schema))
    assert first_tokens(opened(path)) == [1, 2, 3]
    path = tmp_path / "a.parquet"
    with pq.ParquetWriter(path, parts[0].schema) as parquet:
        for part in parts:
            parquet.write_table(part)
    assert first_tokens(opened(path)) == [1, 2, 3]


@pytest.mark.parametrize("form", ["arrow_file", "arrow_stream", "parquet"])
def test_a_file_cut_anywhere_is_refused(opened, tmp_path, write, table, form):
    path = write(tmp_path / "a", table(ROWS), form, rows_per_block=10)
    whole = path.read_bytes()
    ends = [] if form == "parquet" else message_ends(path) if form == "arrow_stream" else []
    cuts = {0, 1, 4, 7, 8, 9, 100, len(whole) // 2, len(whole) - 9, len(whole) - 8, len(whole) - 1, *ends}
    for cut in sorted(cuts):
        path.write_bytes(whole[:cut])
        assert f"Shard '{path.name}'" in refusal(opened, path), cut
    path.write_bytes(whole)
    assert len(opened(path)) == 40


def test_a_stream_cut_between_batches_says_how_many_it_has(opened, tmp_path, write, table):
    path = write(tmp_path / "a", table(ROWS), "arrow_stream", rows_per_block=10)
    path.write_bytes(path.read_bytes()[: message_ends(path)[2]])
    assert pa.ipc.open_stream(path.read_bytes()).read_all().num_rows == 20, "pyarrow does not notice"
    assert "stops after 2 record batches without an end mark" in refusal(opened, path)


@pytest.mark.parametrize("form", ["arrow_file", "arrow_stream"])
def test_bytes_after_the_end_are_refused(opened, tmp_path, write, table, form):
    path = write(tmp_path / "a", table(ROWS), form)
    whole = path.read_bytes()
    path.write_bytes(whole + whole)
    assert ("bytes follow after the end" in refusal(opened, path)) or (
        "record batches and it holds" in refusal(opened, path)
    )
    path.write_bytes(whole + b"\0")
    assert f"Shard '{path.name}'" in refusal(opened, path)


def test_a_shard_that_lacks_a_column_is_named_in_either_order(opened, tmp_path, write, table):
    with_labels = table([[1, 2]], labels=pa.array([[1, 2]]))
    for number, (first, second) in enumerate(((with_labels, table([[1, 2]])), (table([[1, 2]]), with_labels))):
        directory = tmp_path / f"store-{number}"
        directory.mkdir()
        write(directory / "a", first, "parquet")
        write(directory / "b", second, "parquet")
        lacking, having = ("b", "a") if number == 0 else ("a", "b")
        assert refusal(opened, directory).startswith(
            f"Shard '{lacking}.parquet' lacks the column 'labels' that '{having}.parquet' has (1 of 2 shards lack it)."
        )


def test_two_columns_of_one_name_are_refused(opened, one_file, table, form):
    doubled = table([[1, 2]]).append_column("input_ids", pa.array([[3, 4]]))
    assert "has 2 columns named 'input_ids'" in refusal(opened, one_file(doubled, form))


def test_the_order_of_columns_does_not_matter(opened, tmp_path, write, table):
    directory = tmp_path / "store"
    directory.mkdir()
    plain = table([[1, 2]])
    write(directory / "a", plain, "arrow_stream")
    write(directory / "b", plain.select(["loss_mask", "input_ids"]), "arrow_stream")
    assert first_tokens(opened(directory)) == [1, 1]


def test_a_damaged_page_with_a_checksum_is_refused(opened, tmp_path, table):
    path = tmp_path / "a.parquet"
    pq.write_table(table([[7777] * 50] * 20), path, compression="none", use_dictionary=False, write_page_checksum=True)
    data = bytearray(path.read_bytes())
    at = data.index((7777).to_bytes(4, "little") * 20) + 40
    data[at] ^= 1
    path.write_bytes(bytes(data))
    assert "Shard 'a.parquet', row group 0: it cannot be decoded" in refusal(opened, path)


def test_a_saved_data_set_serves_the_files_that_its_state_names(opened, tmp_path, write, table):
    directory = tmp_path / "saved"
    directory.mkdir()
    write(directory / "data-00000-of-00002", table([[1, 2]]), "arrow_stream")
    write(directory / "data-00001-of-00002", table([[3, 4]]), "arrow_stream")
    write(directory / "cache-5f", pa.table({"indices": pa.array([1, 0], pa.uint64())}), "arrow_stream")
    (directory / "dataset_info.json").write_text("{}")
    files = [{"filename": f"data-0000{number}-of-00002.arrow"} for number in range(2)]
    (directory / "state.json").write_text(json.dumps({"_data_files": files, "_split": "train"}))
    store = opened(directory)
    assert first_tokens(store) == [1, 3]
    assert {entry.path for entry in store.ignored} == {"cache-5f.arrow", "dataset_info.json", "state.json"}
    (directory / "state.json").write_text(json.dumps({"_data_files": [*files, files[0]]}))
    assert "names the data file 'data-00000-of-00002.arrow' twice" in refusal(opened, directory)
    (directory / "state.json").write_text(json.dumps({"_data_files": files}))
    (directory / "data-00001-of-00002.arrow").unlink()
    assert "names the data file 'data-00001-of-00002.arrow', which is not there" in refusal(opened, directory)


@pytest.fixture
def splits(tmp_path, write, table):
    """What `save_to_disk` of a `DatasetDict` leaves."""
    directory = tmp_path / "splits"
    for split, token in (("train", 1), ("test", 9)):
        (directory / split).mkdir(parents=True)
        write(directory / split / "data-00000-of-00001", table([[token, token]]), "arrow_stream")
        state = {"_data_files": [{"filename": "data-00000-of-00001.arrow"}], "_split": "train"}
        (directory / split / "state.json").write_text(json.dumps(state))
    (directory / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    return directory


def test_a_directory_of_splits_lists_them(opened, splits):
    assert f"'{splits}' holds several splits of a data set: 'train', 'test'." in refusal(opened, splits)


def test_a_split_that_is_named_is_a_store(splits, index_dir):
    train, test = (open_store(splits, split=split, index_dir=index_dir) for split in ("train", "test"))
    assert (first_tokens(train), first_tokens(test)) == ([1], [9])
    assert train.fingerprint == open_store(splits / "train", index_dir=index_dir).fingerprint
    assert first_tokens(pickle.loads(pickle.dumps(test))) == [9]  # noqa: S301
    assert first_tokens(open_store(f"file://{splits}", split="test", index_dir=index_dir)) == [9]


def test_a_server_serves_the_split_that_its_configuration_names(splits, index_dir):
    settings = {"chat": {"path": str(splits), "split": "test"}}
    catalog = open_catalog(ServerConfig(stores=settings, index_dir=index_dir))
    assert first_tokens(catalog.get("chat")) == [9]


def test_a_split_that_is_not_there_is_answered_with_those_that_are(splits, index_dir, tmp_path):
    for where in (splits, f"file://{splits}"):
        with pytest.raises(StoreRefusedError, match="'train', 'test'"):
            open_store(where, split="validation", index_dir=index_dir)
    with pytest.raises(StoreNotFoundError):
        open_store(tmp_path / "nowhere", split="train", index_dir=index_dir)


@pytest.mark.parametrize("split", ["", "..", "../train", "a/b", "/train"])
def test_a_split_is_a_name_and_no_path(splits, index_dir, split):
    with pytest.raises(InvalidConfigError, match="no name of a split"):
        open_store(splits, split=split, index_dir=index_dir)


@pytest.mark.parametrize("kind", ["broken link", "pipe"])
def test_what_is_no_file_is_refused_and_not_waited_on(opened, tmp_path, write, table, kind):
    directory = tmp_path / "store"
    directory.mkdir()
    write(directory / "a", table([[1, 2]]), "parquet")
    if kind == "pipe":
        os.mkfifo(directory / "b.parquet")
    else:
        (directory / "b.parquet").symlink_to(tmp_path / "gone")
    assert refusal(opened, directory).startswith(f"'b.parquet' in '{directory}' is no file that can be read")
