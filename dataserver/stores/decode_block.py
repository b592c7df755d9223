"""One block out of Arrow's hands: tokens in the width of the wire, one byte a mask value, floats as they are served."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dataserver.errors import StoreDamagedError
from dataserver.stores.decoded_block import DecodedBlock, DecodedImages
from dataserver.stores.image_rules import ImageColumns
from dataserver.stores.image_table import ImageTable
from dataserver.stores.manifest import Manifest
from dataserver.stores.nested import Nested
from dataserver.stores.pieces import image_columns
from dataserver.stores.ragged import Ragged, ragged
from dataserver.stores.schema import INPUT_IDS, LOSS_MASK, LOSS_WEIGHT, LossMask

Damage = Callable[[str], StoreDamagedError]


def decode_block(
    batches: Iterable[pa.RecordBatch],
    *,
    shard: str,
    manifest: Manifest,
    lengths: NDArray[np.int32],
    images: ImageTable,
    damage: Damage,
) -> DecodedBlock:
    """Copy the record batches of one block, whose rows have `lengths` tokens and `images` (which counts them from 0).

    Raises `StoreRefusedError` where they cannot be read, and what `damage` makes of a problem where they are not what
    was admitted.
    """
    filling = _Filling(manifest, lengths, images, damage)
    for batch in batches:
        filling.add(batch, shard)
    return filling.block()


class _Filling:
    """The arrays of a block, filled row by row."""

    def __init__(self, manifest: Manifest, lengths: NDArray[np.int32], images: ImageTable, damage: Damage) -> None:
        self._max_token = manifest.max_token
        self._damage = damage
        self._row = 0
        self._starts: NDArray[np.int64] = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
        count = int(self._starts[-1])
        self._tokens: NDArray[Any] = np.empty(count, dtype=f"u{manifest.token_bytes}")
        self._mask = np.empty(count, dtype=np.uint8) if manifest.loss_mask is LossMask.COLUMN else None
        self._weights = np.empty(count, dtype=np.float32) if manifest.has_weights else None
        self._images = None if manifest.images is None else _FilledImages(images, manifest)

    def add(self, batch: pa.RecordBatch, shard: str) -> None:
        """Copy the rows of `batch`, which follow those before."""
        names = set(batch.schema.names)
        columns = {
            name: ragged(batch.column(name), shard=shard, column=name)
            for name in (INPUT_IDS, LOSS_MASK, LOSS_WEIGHT)
            if name in names
        }
        end = self._row + batch.num_rows
        if not np.array_equal(columns[INPUT_IDS].lengths, np.diff(self._starts[self._row : end + 1])):
            raise self._damage(f"rows {self._row} to {end} have other lengths than those admitted")
        span = slice(*self._starts[[self._row, end]].tolist())
        self._fill(columns[INPUT_IDS], self._tokens[span], self._max_token)
        if self._mask is not None:
            self._fill(columns[LOSS_MASK], self._mask[span], 1)
        if self._weights is not None:
            self._fill(columns[LOSS_WEIGHT], self._weights[span], float(np.finfo(np.float32).max))
        images = image_columns(batch, shard=shard)
        if self._images is not None and images is not None:
            self._images.add(images, self._row, end, self._damage)
        self._row = end

    def block(self) -> DecodedBlock:
        """What was filled."""
        rows = len(self._starts) - 1
        if self._row != rows:
            raise self._damage(f"it has {self._row} rows where {rows} were admitted")
        return DecodedBlock(
            tokens=self._tokens,
            mask=self._mask,
            weights=self._weights,
            images=None if self._images is None else self._images.images,
            starts=self._starts,
        )

    def _fill(self, column: Ragged, out: NDArray[Any], highest: float) -> None:
        """Copy a column's values; what admission cannot have seen would wrap around in `out`."""
        values, nulls = column.flat()
        if len(values) != len(out) or nulls is not None:
            raise self._damage("its lists differ from those admitted")
        if len(values) and not (float(values.min()) >= 0 and float(values.max()) <= highest):
            raise self._damage(f"it has a value outside of 0..{highest}, which were admitted")
        out[:] = values


class _FilledImages:
    """The images of a block, as they are copied."""

    def __init__(self, table: ImageTable, manifest: Manifest) -> None:
        figures = manifest.images
        width, pixel_bytes = (0, 4) if figures is None else (figures.patch_values, figures.pixel_bytes)
        self._grid_ends = np.concatenate(([0], np.cumsum(3 * table.images)))
        self._pixel_ends = np.concatenate(([0], np.cumsum(width * table.patches)))
        self.images = DecodedImages(
            grids=np.empty(int(self._grid_ends[-1]), dtype="<i8"),
            pixels=np.empty(int(self._pixel_ends[-1]), dtype=f"<f{pixel_bytes}"),
            table=ImageTable(
                rows=table.rows,
                images=table.images,
                patches=table.patches,
                grids_at=self._grid_ends[:-1],
                pixels_at=self._pixel_ends[:-1],
            ),
        )

    def add(self, columns: ImageColumns, begin: int, end: int, damage: Damage) -> None:
        """Copy the images of rows `begin` up to `end`."""
        first, last = np.searchsorted(self.images.table.rows, (begin, end)).tolist()
        if not np.array_equal(columns.rows_with_images + begin, self.images.table.rows[first:last]):
            raise damage("other rows have images than those admitted")
        for column, ends, out in (
            (columns.image_grid_thw, self._grid_ends, self.images.grids),
            (columns.pixel_values, self._pixel_ends, self.images.pixels),
        ):
            _copy(column, ends[first : last + 1], out, damage)


def _copy(column: Nested, ends: NDArray[np.int64], out: NDArray[Any], damage: Damage) -> None:
    """`ends`: where the values of each row with images end in `out`, after where those of the first begin."""
    values, nulls = column.values.flat()
    lengths = column.values.lengths
    if not np.array_equal(lengths[lengths > 0], np.diff(ends)) or nulls is not None:
        raise damage("its images differ from those admitted")
    out[int(ends[0]) : int(ends[-1])] = values
