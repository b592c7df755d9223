"""Rows with images: read as they were written in every form, refused where a processor would choke, never cut."""

import numpy as np
import pyarrow as pa
import pytest

from dataserver.errors import StoreRefusedError
from dataserver.run_spec import LongRows

NESTED = {"pixel_values": pa.list_(pa.list_(pa.float32())), "image_grid_thw": pa.list_(pa.list_(pa.int64()))}


def drawn(count: int, *, width: int = 6, seed: int = 0) -> list[dict]:
    """Rows of which every third has one to three images."""
    random = np.random.default_rng(seed)
    rows = []
    for number in range(count):
        tokens = int(random.integers(2, 20))
        row = {"input_ids": random.integers(0, 900, tokens).tolist(), "pixel_values": None, "image_grid_thw": None}
        if number % 3 == 0:
            grid = random.integers(1, 4, (int(random.integers(1, 4)), 3))
            row["image_grid_thw"] = grid.tolist()
            patches = int(grid.prod(axis=1).sum())
            # Halves of integers are the same in every width of float.
            row["pixel_values"] = (random.integers(-9, 9, (patches, width)) / 2).tolist()
        rows.append(row)
    return rows


def flat(values):
    return None if values is None else [value for inner in values for value in inner]


def as_table(table, rows, kind="nested", value=None, grid=None):
    """The rows with image columns in one of the layouts that writers produce."""
    value, grid = value or pa.float32(), grid or pa.int64()
    pixels, grids = [row["pixel_values"] for row in rows], [row["image_grid_thw"] for row in rows]
    types = {
        "nested": (pa.list_(pa.list_(value)), pa.list_(pa.list_(grid))),
        "large": (pa.large_list(pa.large_list(value)), pa.large_list(pa.large_list(grid))),
        "matrix": (pa.list_(pa.list_(value, 6)), pa.list_(pa.list_(grid, 3))),
        "flat": (pa.list_(value), pa.list_(grid)),
    }
    if kind == "flat":
        pixels, grids = [flat(values) for values in pixels], [flat(values) for values in grids]
    pixel_type, grid_type = types[kind]
    return table(
        [row["input_ids"] for row in rows],
        pixel_values=pa.array(pixels, pixel_type),
        image_grid_thw=pa.array(grids, grid_type),
    )


def assert_same(row, written):
    assert row.input_ids.tolist() == written["input_ids"]
    if written["pixel_values"] is None:
        assert row.pixel_values is None
        assert row.image_grid_thw is None
    else:
        assert row.pixel_values.tolist() == written["pixel_values"]
        assert row.image_grid_thw.tolist() == written["image_grid_thw"]
        assert row.image_grid_thw.dtype == np.int64


@pytest.mark.parametrize("kind", ["nested", "large", "matrix", "flat"])
def test_images_are_read_as_they_were_written_in_every_layout(opened, one_file, table, form, kind):
    rows = drawn(40)
    with opened(one_file(as_table(table, rows, kind), form, rows_per_block=7)) as store:
        for row, written in zip(store, rows, strict=True):
            assert_same(row, written)
        order = [39, 0, 5, 5, 12, 3]
        for row, number in zip(store.read_rows(order), order, strict=True):
            assert_same(row, rows[number])
        assert store.images.rows == 14
        assert store.images.images == sum(len(row["image_grid_thw"] or ()) for row in rows)
        assert store.images.patches == sum(len(row["pixel_values"] or ()) for row in rows)
        assert store.images.patch_values == 6


@pytest.mark.parametrize(
    ("value", "grid", "pixel_bytes"),
    [
        (pa.float16(), pa.int32(), 2),
        (pa.float32(), pa.uint8(), 4),
        (pa.float64(), pa.float64(), 4),
        (pa.float64(), pa.int16(), 4),
    ],
)
def test_any_width_of_numbers_is_served_as_float16_or_float32(opened, one_file, table, form, value, grid, pixel_bytes):
    rows = drawn(10)
    with opened(one_file(as_table(table, rows, value=value, grid=grid), form, rows_per_block=3)) as store:
        assert store.images.pixel_bytes == pixel_bytes
        for row, written in zip(store, rows, strict=True):
            assert_same(row, written)


def test_a_tensor_column_of_one_shape_is_read_by_its_storage(opened, one_file, table):
    values = np.arange(2 * 4 * 3, dtype=np.float32).reshape(2, 4, 3)
    tensors = pa.FixedShapeTensorArray.from_numpy_ndarray(values)
    grids = pa.array([[[1, 2, 2]], [[2, 2, 1]]], NESTED["image_grid_thw"])
    with opened(one_file(table([[1, 2], [3, 4]], pixel_values=tensors, image_grid_thw=grids))) as store:
        for row, written in zip(store, values, strict=True):
            np.testing.assert_array_equal(row.pixel_values, written)


@pytest.mark.parametrize("nothing", [None, []])
def test_columns_without_any_image_make_a_store_of_text(opened, one_file, table, nothing):
    columns = {name: pa.array([nothing, nothing], kind) for name, kind in NESTED.items()}
    with opened(one_file(table([[1, 2], [3, 4]], **columns))) as store:
        assert store.images is None
        assert store.tables.image_flags is None
        assert len(store.tables.images) == 0
        assert [row.pixel_values for row in store] == [None, None]


GOOD = [[[0.5, 1.0]] * 4, None, [[0.0, 0.0]] * 6]
GRIDS = [[[1, 2, 2]], None, [[1, 2, 2], [1, 1, 2]]]


def refusal(opened, one_file, table, pixels=None, grids=None, value=None) -> str:
    columns = {
        "pixel_values": pa.array(pixels or GOOD, pa.list_(pa.list_(value or pa.float32()))),
        "image_grid_thw": pa.array(grids or GRIDS, pa.list_(pa.list_(pa.int64()))),
    }
    with pytest.raises(StoreRefusedError) as caught:
        opened(one_file(table([[1, 2], [3, 4], [5, 6]], **columns)))
    return caught.value.message


@pytest.mark.parametrize("missing", ["pixel_values", "image_grid_thw"])
def test_a_row_with_only_one_of_both_is_refused_to_the_letter(opened, one_file, table, missing):
    pixels, grids = list(GOOD), list(GRIDS)
    (pixels if missing == "pixel_values" else grids)[2] = None
    message = refusal(opened, one_file, table, pixels, grids)
    assert message.startswith("Row 2: VLM rows must carry both ('pixel_values', 'image_grid_thw'), found only one.")


@pytest.mark.parametrize("column", ["pixel_values", "image_grid_thw"])
def test_a_store_with_only_one_of_the_columns_is_refused(opened, one_file, table, column):
    path = one_file(table([[1, 2]], **{column: pa.array([None], NESTED[column])}))
    with pytest.raises(StoreRefusedError, match=f"'{column}' alone"):
        opened(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"grids": [[[1, 2, 2]], None, [[1, 0, 2], [1, 1, 2]]]}, "Row 2: image_grid_thw holds 0"),
        ({"grids": [[[1, 2, -2]], None, [[1, 2, 2], [1, 1, 2]]]}, "Row 0: image_grid_thw holds -2"),
        ({"grids": [[[1, 2, 2**40]], None, GRIDS[2]]}, f"Row 0: image_grid_thw holds {2**40}"),
        ({"grids": [[[1, 2, None]], None, GRIDS[2]]}, "Row 0: image_grid_thw holds a null."),
        ({"grids": [[[1, 2]], None, GRIDS[2]]}, "Row 0: image_grid_thw must hold three numbers an image"),
        ({"grids": [[[1, 2, 2]], None, [[1, 2, 2], [1, 1, 3]]]}, "Row 2: pixel_values has 6 patches"),
        ({"pixels": [GOOD[0], None, [[0.0, 0.0]] * 5 + [[1.0]]]}, "Row 2: the patches of pixel_values"),
        ({"pixels": [GOOD[0], None, [[0.0, 0.0]] * 5 + [None]]}, "Row 2: the patches of pixel_values"),
        ({"pixels": [GOOD[0], None, [[0.0] * 3] * 6]}, "Row 2: pixel_values has 3 values a patch"),
        ({"pixels": [GOOD[0], None, [[0.0, float("nan")]] * 6]}, "Row 2: pixel_values holds nan"),
        ({"pixels": [GOOD[0], None, [[0.0, float("-inf")]] * 6]}, "Row 2: pixel_values holds -inf"),
        ({"pixels": [GOOD[0], None, [[0.0, None]] * 6]}, "Row 2: pixel_values holds a null."),
        ({"pixels": [GOOD[0], None, [[0.0, 1e39]] * 6], "value": pa.float64()}, "Row 2: pixel_values holds 1e+39"),
    ],
)  # fmt: skip
def test_what_a_processor_would_choke_on_is_refused_with_the_row(opened, one_file, table, changes, message):
    assert refusal(opened, one_file, table, **changes).startswith(message)


def test_patches_of_one_width_are_demanded_across_blocks_and_shards(opened, tmp_path, write, table):
    (tmp_path / "store").mkdir()
    for name, width in (("a", 2), ("b", 3)):
        pixels = pa.array([[[0.0] * width]], NESTED["pixel_values"])
        grids = pa.array([[[1, 1, 1]]], NESTED["image_grid_thw"])
        found = table([[1, 2]], pixel_values=pixels, image_grid_thw=grids)
        write(tmp_path / "store" / name, found, "arrow_file")
    with pytest.raises(StoreRefusedError, match="Row 1: pixel_values has 3 values a patch where rows before have 2"):
        opened(tmp_path / "store")


@pytest.mark.parametrize("kind", [pa.string(), pa.list_(pa.string()), pa.list_(pa.list_(pa.list_(pa.float32())))])
def test_other_types_are_refused_by_name(opened, one_file, table, kind):
    grids = pa.array([None, None], NESTED["image_grid_thw"])
    path = one_file(table([[1, 2], [3, 4]], pixel_values=pa.array([None, None], kind), image_grid_thw=grids))
    with pytest.raises(StoreRefusedError, match="pixel_values"):
        opened(path)


@pytest.mark.parametrize("long_rows", [LongRows.TRUNCATE, LongRows.DROP, LongRows.REFUSE])
def test_image_rows_that_are_too_long_are_dropped_and_counted_never_cut(opened, one_file, table, form, long_rows):
    rows = drawn(60, seed=4)
    if long_rows is LongRows.REFUSE:  # text rows that are too long would refuse the store
        rows = [row for row in rows if row["pixel_values"] is not None or len(row["input_ids"]) <= 9]
    with opened(one_file(as_table(table, rows), form, rows_per_block=11)) as store:
        view = store.view(9, long_rows)
        long_images = [row for row in rows if row["pixel_values"] is not None and len(row["input_ids"]) > 9]
        assert len(long_images) > 3
        assert view.dropped["image_too_long"] == len(long_images)
        numbers = np.arange(view.rows)
        flags = view.has_images(numbers)
        for number, flag, length in zip(view.store_rows(numbers), flags, view.lengths(numbers), strict=True):
            assert flag == (rows[number]["pixel_values"] is not None)
            if flag:
                assert length == len(rows[number]["input_ids"])
        reasons = store.reasons(0, len(rows), 9, long_rows)
        assert reasons.count("image_too_long") == len(long_images)


def test_the_densest_row_bounds_the_bytes_of_images_for_each_token(opened, one_file, table):
    rows = drawn(30, seed=2)
    with opened(one_file(as_table(table, rows))) as store:
        per_token = [
            (len(row["pixel_values"]) * 6 * 4 + 24 * len(row["image_grid_thw"]) + 5) / len(row["input_ids"])
            if row["pixel_values"] else 0
            for row in rows
        ]  # fmt: skip
        assert store.images.bytes_per_token == np.ceil(max(per_token))
        assert store.images.densest_row == int(np.argmax(per_token))
