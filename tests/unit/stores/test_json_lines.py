"""JSON Lines are served as they were written, or refused with file, line and column."""

import gzip
import json
import tracemalloc

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dataserver.errors import StoreRefusedError
from dataserver.stores import LossMask, json_copy, json_lines
from dataserver.stores.json_copy import write_copy
from dataserver.stores.local_files import LocalSource

GOOD = {"input_ids": [1, 2, 3], "loss_mask": [0, 1, 1]}
NAMES = ("rows.jsonl", "rows.json", "ROWS.JSONL", "rows.jsonl.gz", "rows.json.gz", "rows.jsonl.ZST", "rows.json.zst")


def compressed(data, name):
    kinds = {".gz": "gzip", ".zst": "zstd"}
    kind = next((kind for suffix, kind in kinds.items() if name.lower().endswith(suffix)), None)
    if kind is None:
        return data
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, kind) as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


def lines_of(*rows):
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


@pytest.fixture
def written(tmp_path):
    """Write bytes as a store of one file; rows become lines."""

    def write(content, name="rows.jsonl"):
        path = tmp_path / name
        path.write_bytes(compressed(content if isinstance(content, bytes) else lines_of(*content), name))
        return path

    return write


def refused(opened, path, **options):
    with pytest.raises(StoreRefusedError) as caught:
        opened(path, **options)
    return caught.value


@pytest.mark.parametrize("name", NAMES)
def test_rows_are_served_as_they_were_written(opened, written, name):
    rows = [GOOD, {"loss_mask": [1, 1], "input_ids": [70_000, 0], "text": 'a: {"b": [1, 2.5]}'}, {**GOOD, "text": None}]
    store = opened(written(rows, name))
    assert [row.input_ids.tolist() for row in store] == [row["input_ids"] for row in rows]
    assert [row.loss_mask.tolist() for row in store] == [row["loss_mask"] for row in rows]
    assert store.format == "json"
    assert store.shards[0].layout is not None, "the copy is mapped"


ragged = st.lists(st.lists(st.tuples(st.integers(0, 2**31 - 1), st.booleans()), max_size=6), max_size=12)


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=ragged,
    spelling=st.sampled_from([int, float, lambda value: f"{value}e0"]),
    mask=st.sampled_from([bool, int, float]),
    batch=st.sampled_from([1, 5, 1 << 20]),
    chunk=st.sampled_from([1, 7, 1 << 20]),
    ended=st.booleans(),
    name=st.sampled_from(["a.jsonl", "a.jsonl.gz", "a.jsonl.zst"]),
)
def test_any_rows_in_any_spelling_are_the_same_rows(opened, written, rows, spelling, mask, batch, chunk, ended, name):
    lines = []
    for row in rows:
        tokens = ", ".join(str(spelling(token)) for token, _ in row)
        lines.append(f'{{"input_ids": [{tokens}], "loss_mask": {json.dumps([mask(one) for _, one in row])}}}')
    text = "\r\n".join(lines) + ("\n" if ended and lines else "")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_copy, "BATCH_TOKENS", batch)
        patch.setattr(json_lines, "CHUNK_BYTES", chunk)
        if not rows:
            assert "missing required 'input_ids'" in refused(opened, written(text.encode(), name)).message
            return
        store = opened(written(text.encode(), name))
    assert [row.input_ids.tolist() for row in store] == [[token for token, _ in row] for row in rows]
    assert [row.loss_mask.tolist() for row in store] == [[int(one) for _, one in row] for row in rows]


FAULTS = {
    '{"input_ids": [1, 2], "loss_mask": [0, 1': ("", "41", "cut off"),
    '{"input_ids": [1, 2], "loss_mask": [0, 1]} {}': ("", "44", "this is no JSON"),
    '{"input_ids": [1, NaN], "loss_mask": [0, 1]}': ("", "19", "this is no JSON"),
    "": ("", "", "it is blank"),
    "  \t": ("", "", "it is blank"),
    "[[1, 2], [0, 1]]": ("", "1", "it holds a list and no object"),
    "null": ("", "1", "it holds null and no object"),
    '{"input_ids": [1, true], "loss_mask": [0, 1]}': ("", "input_ids", "value 1 is a boolean"),
    '{"input_ids": [1, "2"], "loss_mask": [0, 1]}': ("", "input_ids", "value 1 is text"),
    '{"input_ids": [[1, 2]], "loss_mask": [0, 1]}': ("", "input_ids", "value 0 is a list"),
    '{"input_ids": "12", "loss_mask": [0, 1]}': ("", "input_ids", "it holds text and no list"),
    '{"input_ids": [1, 2.5], "loss_mask": [0, 1]}': ("2", "input_ids", "holds 2.5, which is not a whole number"),
    '{"input_ids": [1, -2], "loss_mask": [0, 1]}': ("2", "input_ids", "holds -2, a negative token id"),
    '{"input_ids": [1, 2147483648], "loss_mask": [0, 1]}': ("2", "input_ids", "holds 2147483648, above 2147483647"),
    '{"input_ids": [1, 18446744073709551616], "loss_mask": [0, 1]}': ("2", "input_ids", "above 2147483647"),
    '{"input_ids": [1, 18446744073709551615], "loss_mask": [0, 1]}': ("2", "input_ids", "above 2147483647"),
    '{"input_ids": [0.5, 9007199254740993], "loss_mask": [0, 1]}': ("2", "input_ids", "not a whole number"),
    '{"input_ids": [1, null], "loss_mask": [0, 1]}': ("2", "input_ids", "holds a null"),
    '{"input_ids": null, "loss_mask": [0, 1]}': ("2", "input_ids", "input_ids is null"),
    '{"input_ids": [1, 2], "loss_mask": [0, 0.5]}': ("2", "loss_mask", "must contain only 0s and 1s."),
    '{"input_ids": [1, 2], "loss_mask": [0, 2]}': ("2", "loss_mask", "must contain only 0s and 1s."),
    '{"input_ids": [1, 2], "loss_mask": [0, null]}': ("2", "loss_mask", "must contain only 0s and 1s."),
    '{"input_ids": [1, 2], "loss_mask": [1]}': ("2", "loss_mask", "loss_mask length (1) must equal len(input_ids) (2)"),
    '{"input_ids": [1, 2], "loss_mask": null}': ("2", "loss_mask", "loss_mask is null"),
    '{"input_ids": [1, 2]}': ("", "loss_mask", "it lacks this column"),
    '{"input_ids": [1, 2], "loss_mask": [0, 1], "attention_mask": [1, 1]}': ("", "attention_mask", "line 1 lacks it"),
    '{"input_ids": [1, 2], "loss_mask": [0, 1], "input_ids": [3, 4]}': ("", "input_ids", "this key twice"),
    '{"input_ids": [1, 2], "input\\u005fids": [3, 4], "loss_mask": [0, 1]}': ("", "input_ids", "this key twice"),
    '{"input_ids": [1, 2], "loss_mask": [0, 1], "x": 1, "x": "a: b"}': ("", "x", "this key twice"),
    '\ufeff{"input_ids": [1, 2], "loss_mask": [0, 1]}': ("", "1", "BOM"),
}


def test_a_line_that_is_nested_too_deeply_is_refused(opened, written):
    nested = '{"input_ids": [1, 2], "loss_mask": [0, 1], "x": ' + '{"y": ' * 1000 + "0" + "}" * 1001 + "\n"
    assert "nested too deeply" in refused(opened, written(nested.encode())).message


@pytest.mark.parametrize("line", FAULTS)
def test_a_fault_is_named_with_its_line_and_its_column(opened, written, line):
    row, column, text = FAULTS[line]
    error = refused(opened, written(lines_of(GOOD, GOOD) + line.encode() + b"\n" + lines_of(GOOD)))
    assert text in error.message
    assert "hard 'rows.jsonl', line 3" in error.message
    assert (error.details["shard"], error.details["line"]) == ("rows.jsonl", "3")
    assert (error.details.get("row", ""), error.details.get("column", "")) == (row, column)


def test_text_that_is_no_utf_8_is_refused_where_it_stands(opened, written):
    error = refused(opened, written(lines_of(GOOD) + b'{"input_ids": [1], "text": "\xff"}\n'))
    assert "line 2, column 29: this is no UTF-8." in error.message


@pytest.mark.parametrize(
    "content", ["[\n{}\n]", '[{"input_ids": [1]},\n{"input_ids": [2]}]', '{\n"input_ids": [1]\n}', "[{}]"]
)
def test_a_file_that_is_one_value_is_refused_with_what_to_do(opened, written, content):
    error = refused(opened, written(content.encode(), "data.json"))
    assert "`jq -c '.[]' data.json > data.jsonl`" in error.message


def test_the_first_fault_in_row_order_wins_and_rows_are_counted_through_the_store(opened, tmp_path):
    store = tmp_path / "store"
    store.mkdir()
    short = {"input_ids": [1, 2], "loss_mask": [1]}
    (store / "a.jsonl").write_bytes(lines_of(GOOD, GOOD, GOOD))
    (store / "b.jsonl").write_bytes(lines_of(GOOD, short) + b"no JSON\n")
    (store / "c.jsonl").write_bytes(lines_of(short) + b"no JSON\n")
    error = refused(opened, store)
    assert error.message.startswith("Row 4: loss_mask length (1)")
    assert "(shard 'b.jsonl', line 2, column 'loss_mask')" in error.message
    assert error.details["row"] == "4"


def test_a_mask_that_is_not_read_is_not_checked(opened, written):
    path = written([{"input_ids": [1, 2]}, {"input_ids": [3, 4], "loss_mask": "none"}])
    assert [row.input_ids.tolist() for row in opened(path, LossMask.ALL)] == [[1, 2], [3, 4]]
    assert "missing required 'loss_mask' column" in refused(opened, path).message


def test_labels_without_a_mask_are_refused_with_how_to_derive_it(opened, written):
    assert "derive the mask" in refused(opened, written([{"input_ids": [1], "labels": [-100]}])).message


def test_weights_are_served_as_they_were_written(opened, written):
    weights = [[0, 1, 0.5], [2.25, 3e38, 1e-3]]
    store = opened(written([{**GOOD, "loss_weight": row} for row in weights]))
    assert [row.loss_weight.tolist() for row in store] == np.array(weights, np.float32).tolist()


@pytest.mark.parametrize(
    ("weights", "text"),
    [
        ([1, 1, -0.5], "Row 1: loss_weight holds -0.5; weights are finite float32 numbers from 0 on."),
        ([1, 1, 1e300], "Row 1: loss_weight holds 1e+300;"),
        ([1, 1], "Row 1: loss_weight length (2) must equal len(input_ids) (3)."),
        ([1, 1, None], "Row 1: loss_weight holds a null."),
        (None, "Row 1: loss_weight is null."),
        ([1, 1, True], "Shard 'rows.jsonl', line 2, column 'loss_weight': value 2 is a boolean and no number."),
    ],
)
def test_a_weight_that_is_none_is_refused_with_its_row_and_line(opened, written, weights, text):
    error = refused(opened, written([{**GOOD, "loss_weight": [1, 1, 1]}, {**GOOD, "loss_weight": weights}]))
    assert error.message.startswith(text)
    assert error.details["line"] == "2"


@pytest.mark.parametrize("column", ["pixel_values", "image_grid_thw"])
def test_image_rows_are_not_passed_over(opened, written, column):
    assert column in refused(opened, written([GOOD, {**GOOD, column: [[1.0]]}])).message


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_a_compressed_file_cut_anywhere_is_refused(opened, written, suffix):
    path = written([GOOD] * 500, f"rows.jsonl{suffix}")
    whole = path.read_bytes()
    for cut in {0, 1, 2, 5, 20, len(whole) // 2, len(whole) - 5, len(whole) - 1}:
        path.write_bytes(whole[:cut])
        assert f"Shard 'rows.jsonl{suffix}'" in refused(opened, path).message, cut
    path.write_bytes(whole + b"left over")
    assert "the file cannot be read on" in refused(opened, path).message
    path.write_bytes(whole * 2)
    assert len(opened(path)) == 1000, "members laid end to end are one file to every reader"


@pytest.mark.parametrize(
    ("name", "data"),
    [("a.jsonl", gzip.compress(b"{}")), ("a.jsonl.gz", b"{}"), ("a.json.zst", b"")],
    ids=["packed", "plain", "nothing"],
)
def test_a_name_that_does_not_say_how_a_file_is_compressed_is_refused(opened, tmp_path, name, data):
    (tmp_path / name).write_bytes(data)
    assert f"Shard '{name}' is named like" in refused(opened, tmp_path / name).message


def test_files_without_lines_stand_anywhere(opened, tmp_path):
    store = tmp_path / "store"
    store.mkdir()
    for number, rows in enumerate(([], [GOOD], [], [GOOD, GOOD], [])):
        (store / f"chunk-{number}.jsonl").write_bytes(lines_of(*rows))
    (store / "chunk-5.jsonl.gz").write_bytes(gzip.compress(b""))
    found = opened(store)
    assert [shard.rows for shard in found.shards] == [0, 1, 0, 2, 0, 0]
    assert [row.input_ids.tolist() for row in found] == [[1, 2, 3]] * 3


def test_json_beside_parquet_is_a_side_file_and_json_lines_are_another_format(opened, tmp_path, write, table):
    store = tmp_path / "store"
    store.mkdir()
    write(store / "a", table([[1, 2]]), "parquet")
    (store / "info.json").write_text("[]")
    assert [(entry.path, entry.reason) for entry in opened(store).ignored] == [("info.json", "JSON side file")]
    (store / "b.jsonl").write_bytes(lines_of(GOOD))
    assert "mixes formats: 'b.jsonl' is json, 'a.parquet' is parquet" in refused(opened, store).message


def test_shards_that_lack_a_column_are_named_in_either_order(opened, tmp_path):
    bare = {"input_ids": [1, 2]}
    for names in (("a", "b"), ("b", "a")):
        store = tmp_path / "".join(names)
        store.mkdir()
        (store / f"{names[0]}.jsonl").write_bytes(lines_of(GOOD))
        (store / f"{names[1]}.jsonl").write_bytes(lines_of(bare))
        expected = f"Shard '{names[1]}.jsonl' lacks the column 'loss_mask' that '{names[0]}.jsonl' has"
        assert refused(opened, store).message.startswith(expected)


def test_the_fingerprint_is_that_of_the_files(opened, written, tmp_path):
    path = written([GOOD])
    before = opened(path).fingerprint
    path.write_bytes(path.read_bytes().replace(b": [1", b":  [1"))
    assert opened(path).fingerprint != before


def test_a_line_without_end_is_refused_before_it_fills_the_memory(opened, written, monkeypatch):
    monkeypatch.setattr(json_lines, "MAX_LINE_BYTES", 1 << 20)
    monkeypatch.setattr(json_lines, "CHUNK_BYTES", 1 << 16)
    path = written(b'{"input_ids": [' + b" " * (50 << 20), "bomb.jsonl.zst")
    assert path.stat().st_size < 1 << 14
    tracemalloc.start()
    try:
        message = refused(opened, path).message
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert "line 1: it is longer than 1048576 bytes" in message
    assert peak < 8 << 20


def test_memory_is_bounded_by_a_batch_however_many_rows_come_out(tmp_path, monkeypatch):
    """200 MB of rows in 20 kB: all of them pass through, and never many at once."""
    monkeypatch.setattr(json_copy, "BATCH_TOKENS", 1 << 14)
    monkeypatch.setattr(json_lines, "CHUNK_BYTES", 1 << 16)
    line = lines_of({"input_ids": [7] * 1000, "loss_mask": [1] * 1000})
    sink = pa.OSFile(str(tmp_path / "a.jsonl.zst"), "wb")
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        for _ in range(4000):
            stream.write(line)
    sink.close()
    path = tmp_path / "a.jsonl.zst"
    source = LocalSource(name=path.name, size=path.stat().st_size, local_path=path)
    usual = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(usual)
    pa.set_memory_pool(pool)
    tracemalloc.start()
    try:
        rows = write_copy(source, tmp_path / "copy", LossMask.COLUMN, lambda: 0, lambda _: None)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(usual)
    assert (rows, (tmp_path / "copy").stat().st_size > 5 * 4_000_000) == (4000, True)
    assert peak + pool.max_memory() < 8 << 20
