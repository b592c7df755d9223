"""Where a list column lies in a mapped Arrow file, so that rows are read with numpy alone.

    row r of a block ──> start = offsets[offsets_at + r] + values_at ──> values[start : start + length]
                         start = r * size + values_at                    (fixed_size_list)

Both positions count elements of a view of the whole file in the column's own dtype (bits where
the values are `bool`). Lengths are not needed: the index has them.
"""

from dataclasses import dataclass
from itertools import chain
from typing import Final

import numpy as np
import pyarrow as pa

from dataserver.stores.manifest import ColumnLayout, ImageLayout, ShardLayout
from dataserver.stores.ragged import VALUE_TYPES, ArrowArray, ArrowBuffer, is_list, storage_of
from dataserver.stores.schema import IMAGE_GRID_THW, INPUT_IDS, LOSS_MASK, LOSS_WEIGHT, PIXEL_VALUES


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where one block of a column begins."""

    layout: ColumnLayout
    offsets_at: int
    values_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MappedFile:
    """A mapped file: the memory address of its first byte, and its size."""

    address: int
    size: int

    def element(self, buffer: ArrowBuffer, width: int) -> int | None:
        """Which element of `width` bytes the buffer begins with; None if it lies elsewhere or askew."""
        begin = buffer.address - self.address
        inside = begin >= 0 and begin + buffer.size <= self.size
        return int(begin // width) if inside and begin % width == 0 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlace:
    """Where a record batch lies in a mapped file; `layout` is None where it must be decoded.

    `positions`: offsets and values of `input_ids`, `loss_mask` and `loss_weight` in turn. `grids_at`, `pixels_at`:
    where the values of the image columns begin.
    """

    layout: ShardLayout | None = None
    positions: tuple[int, ...] = (0,) * 6
    grids_at: int = 0
    pixels_at: int = 0


NOWHERE: Final = BatchPlace()


def place_batch(batch: pa.RecordBatch, file: MappedFile | None) -> BatchPlace:
    """Find the columns of `batch` that are served; `NOWHERE` unless all of them lie in `file` as they are."""
    if file is None:
        return NOWHERE
    found: dict[str, Placement] = {}
    for name in (INPUT_IDS, LOSS_MASK, LOSS_WEIGHT):
        if name in batch.schema.names:
            placement = place(batch.column(name), file)
            if placement is None:
                return NOWHERE
            found[name] = placement
    images, grids_at, pixels_at = None, 0, 0
    if PIXEL_VALUES in batch.schema.names:
        placed = _place_images(batch, file)
        if placed is None:
            return NOWHERE
        images, grids_at, pixels_at = placed
    layouts = {name: placement.layout for name, placement in found.items()}
    at = [
        (p.offsets_at, p.values_at) if (p := found.get(name)) else (0, 0)
        for name in (INPUT_IDS, LOSS_MASK, LOSS_WEIGHT)
    ]
    return BatchPlace(
        layout=ShardLayout(
            input_ids=layouts[INPUT_IDS],
            loss_mask=layouts.get(LOSS_MASK),
            loss_weight=layouts.get(LOSS_WEIGHT),
            images=images,
        ),
        positions=tuple(chain.from_iterable(at)),
        grids_at=grids_at,
        pixels_at=pixels_at,
    )


def place(column: ArrowArray, file: MappedFile) -> Placement | None:
    """Find the list array `column` (any layout, n > 0 rows) in `file`; None if it is not there as it is.

    Compressed and byte-swapped columns are elsewhere in memory: those are decoded.
    """
    array = storage_of(column)
    child = storage_of(array.values)
    offsets, offsets_at, skipped_values = "fixed", 0, 0
    size = 0
    if pa.types.is_fixed_size_list(array.type):
        size = array.type.list_size
        skipped_values = array.offset * size
    else:
        offsets = "int64" if _has_wide_offsets(array.type) else "int32"
        found = file.element(array.buffers()[1], np.dtype(offsets).itemsize)
        if found is None:
            return None
        offsets_at = found + array.offset
    values_at = _values_at(child, file)
    if values_at is None:
        return None
    layout = ColumnLayout(offsets=offsets, size=size, values=_file_type(child))
    return Placement(layout=layout, offsets_at=offsets_at, values_at=values_at + skipped_values)


def _place_images(batch: pa.RecordBatch, file: MappedFile) -> tuple[ImageLayout, int, int] | None:
    """How the image columns of `batch` lie in `file`, and the elements at which values of grids and pixels begin."""
    places: list[int] = []
    kinds: list[str] = []
    for name in (IMAGE_GRID_THW, PIXEL_VALUES):
        values = storage_of(storage_of(batch.column(name)).values)
        if is_list(values.type):
            values = storage_of(values.values)
        at = _values_at(values, file)
        if at is None:
            return None
        places.append(at)
        kinds.append(_file_type(values))
    return ImageLayout(image_grid_thw=kinds[0], pixel_values=kinds[1]), places[0], places[1]


def _has_wide_offsets(kind: pa.DataType) -> bool:
    return bool(pa.types.is_large_list(kind) or pa.types.is_large_list_view(kind))


def _file_type(child: ArrowArray) -> str:
    """The dtype of the values; a column of only [] may have the value type null, and then has none."""
    found = VALUE_TYPES[child.type]
    return "uint8" if found == "null" else found


def _values_at(child: ArrowArray, file: MappedFile) -> int | None:
    if len(child) == 0:
        return 0
    buffer = child.buffers()[1]
    if child.type == pa.bool_():
        byte = file.element(buffer, 1)
        return None if byte is None else byte * 8 + int(child.offset)
    element = file.element(buffer, np.dtype(VALUE_TYPES[child.type]).itemsize)
    return None if element is None else element + int(child.offset)
