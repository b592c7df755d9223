"""The arrays of a store's index, and how rows are found through them.

Per row (int32 each): `lengths`, `first_targets`, `targets`; where the store has them, `weights` (float64) and images
(`image_table`). Per block one record of `BLOCK_FIELDS`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dataserver.stores.image_table import IMAGE_FIELDS, IMAGE_FLAGS, IMAGE_ROWS, NO_IMAGES, ImageTable
from dataserver.stores.index import map_array
from dataserver.stores.manifest import WEIGHTS
from dataserver.stores.spans import FetchTables

LENGTHS = "lengths.i4"
FIRST_TARGETS = "first_targets.i4"
TARGETS = "targets.i4"
BLOCKS = "blocks.i8"

# `first_targets` of a row that has no target at or after position 1.
NO_FIRST_TARGET = 2**31 - 1

BLOCK_FIELDS = (
    "shard",  # number of the shard
    "rows",
    "begin",  # first byte of the block in the shard
    "end",
    "input_ids_offsets",  # see `layout.Placement`; 0 in shards that are decoded
    "input_ids_values",
    "loss_mask_offsets",
    "loss_mask_values",
    "loss_weight_offsets",
    "loss_weight_values",
    "tokens",
    "extra_bytes",  # what weights and images take in the decoded block
    "decoding_bytes",  # what Arrow holds at most while the block is decoded
)

# What `Blocks.needed_bytes` adds up: fields, and how often each counts.
_NEEDED = {"tokens": 5, "rows": 8, "extra_bytes": 1, "decoding_bytes": 1}
_NEEDED_FIELDS = [BLOCK_FIELDS.index(name) for name in _NEEDED]
_NEEDED_TIMES = np.array(list(_NEEDED.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """The blocks of one shard: `table` int64[b, 13] (`BLOCK_FIELDS`), `row_begins` int64[b + 1] within the shard."""

    table: NDArray[np.int64]
    row_begins: NDArray[np.int64]

    def field(self, name: str) -> NDArray[np.int64]:
        """One field of all blocks, int64[b]."""
        return self.table[:, BLOCK_FIELDS.index(name)]

    @property
    def needed_bytes(self) -> NDArray[np.int64]:
        """What decoding each block takes at most, int64[b].

        Arrow's part, then 4 bytes a token, 1 of mask, 8 a row, and those of weights and images.
        """
        return self.needed_bytes_of(np.arange(len(self.table)))

    def needed_bytes_of(self, blocks: NDArray[np.int64]) -> NDArray[np.int64]:
        """`needed_bytes` of some blocks (int64[n]), as the table has it now: int64[n]."""
        found: NDArray[np.int64] = self.table[blocks][:, _NEEDED_FIELDS] @ _NEEDED_TIMES + 8
        return found

    def of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The block of each row of the shard, int64[n]."""
        return np.searchsorted(self.row_begins, rows, side="right") - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """The mapped arrays of one store; int32[rows] each, and the blocks of each shard; `fetch` if it is far away.

    `weights`: float64[rows], the weights of each row's targets; None where the store has none. `image_flags`:
    int8[rows], 1 for rows with images, None where no row has any; `images`: those rows.
    """

    lengths: NDArray[np.int32]
    first_targets: NDArray[np.int32]
    targets: NDArray[np.int32]
    blocks: tuple[Blocks, ...]
    weights: NDArray[np.float64] | None = None
    image_flags: NDArray[np.int8] | None = None
    images: ImageTable = NO_IMAGES
    fetch: FetchTables | None = None

    @classmethod
    def open(cls, directory: Path, *, rows: int, shards: int, digests: Mapping[str, str]) -> Self | None:
        """Map the arrays in `directory`; None where one is missing or is not what was written."""
        per_row = {LENGTHS: "<i4", FIRST_TARGETS: "<i4", TARGETS: "<i4", WEIGHTS: "<f8", IMAGE_FLAGS: "<i1"}
        known = {name: dtype for name, dtype in per_row.items() if name in digests}
        arrays = {name: map_array(directory / name, dtype, rows, digests[name]) for name, dtype in known.items()}
        blocks = _open_blocks(directory / BLOCKS, shards, digests.get(BLOCKS, ""))
        images = (
            _open_records(directory / IMAGE_ROWS, IMAGE_FIELDS, digests[IMAGE_ROWS]) if IMAGE_ROWS in digests else None
        )
        lengths, first_targets, targets = (arrays.get(name) for name in (LENGTHS, FIRST_TARGETS, TARGETS))
        if lengths is None or first_targets is None or targets is None or blocks is None:
            return None
        if any(array is None for array in arrays.values()) or (IMAGE_ROWS in digests and images is None):
            return None
        return cls(
            lengths=lengths,
            first_targets=first_targets,
            targets=targets,
            blocks=blocks,
            weights=arrays.get(WEIGHTS),
            image_flags=arrays.get(IMAGE_FLAGS),
            images=NO_IMAGES if images is None else ImageTable.of(images),
        )


def _open_blocks(path: Path, shards: int, digest: str) -> tuple[Blocks, ...] | None:
    table = _open_records(path, len(BLOCK_FIELDS), digest)
    return None if table is None else by_shard(table, shards)


def by_shard(table: NDArray[np.int64], shards: int) -> tuple[Blocks, ...]:
    """The records of all blocks, int64[b, 13], as those of each shard."""
    bounds = np.searchsorted(table[:, 0], np.arange(shards + 1))
    return tuple(_blocks(table[begin:end]) for begin, end in pairwise(bounds.tolist()))


def _open_records(path: Path, width: int, digest: str) -> NDArray[np.int64] | None:
    """int64[n, width], however many there are."""
    if not path.is_file():
        return None
    numbers: NDArray[Any] | None = map_array(path, "<i8", path.stat().st_size // 8, digest)
    return None if numbers is None or len(numbers) % width else numbers.reshape(-1, width)


def _blocks(table: NDArray[np.int64]) -> Blocks:
    row_begins = np.zeros(len(table) + 1, dtype=np.int64)
    np.cumsum(table[:, BLOCK_FIELDS.index("rows")], out=row_begins[1:])
    return Blocks(table=table, row_begins=row_begins)
