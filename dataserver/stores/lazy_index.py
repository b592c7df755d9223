"""The index of a lazily admitted store: the arrays of an eager one, filled in block by block as blocks are needed.

    blocks.i8, spans.i8   written from the footers: rows, and where bytes lie; what decoding takes, and digests, follow
    heads.u1              as of any far-away store
    lengths.i4, …         filled in, as are `max_tokens.i8` (highest token of each block, and the first row that has it)

So all who share the index directory find out about a block once, and readers cannot tell such a store from another.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from dataserver.stores.block_arrays import BlockArray, BlockArrays, reserve_arrays
from dataserver.stores.index import Building, map_array
from dataserver.stores.manifest import INDEX_VERSION, WEIGHTS, Manifest
from dataserver.stores.spans import HEADS, SPAN_FIELDS, SPANS, FetchTables
from dataserver.stores.tables import (
    BLOCK_FIELDS,
    BLOCKS,
    FIRST_TARGETS,
    LENGTHS,
    TARGETS,
    Tables,
    by_shard,
)

MAX_TOKENS = "max_tokens.i8"

# Fields of a block's and of a range's record that the footers say: they never change.
_PLACE_FIELDS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class LazyIndex:
    """`tables` show what is known at any time. `row_begins`: the first row of each block, int64[b + 1]."""

    tables: Tables
    arrays: BlockArrays
    row_begins: NDArray[np.int64]

    def max_token(self, block: int) -> tuple[int, int]:
        """The highest token of a block that is known (-1: it has none), and the first row of the store that has it."""
        token, row = self.arrays.arrays[MAX_TOKENS][2 * block : 2 * block + 2].tolist()
        return int(token), int(row)


def lazy_path(index: Path, fingerprint: str, where: Path | str, view: str = "") -> Path:
    """Where the index of the store at `where` lies, or that of a `view` of it.

    The place is part of it, for footers can be alike where rows are not: those of Arrow files with rows of one length.
    """
    place = xxhash.xxh3_64_hexdigest(str(where).encode())
    return index / "lazy" / f"{fingerprint}-{INDEX_VERSION}-{place}{view}"


def write_places(
    building: Building, blocks: NDArray[np.int64], spans: NDArray[np.int64], *, weighted: bool
) -> dict[str, str]:
    """Leave an index with nothing filled in; returns digests of what is written, `HEADS` included, for the manifest."""
    digests = building.digests() | {BLOCKS: _digest_of_places(blocks), SPANS: _digest_of_places(spans)}
    building.append(BLOCKS, blocks)
    building.append(SPANS, spans)
    reserve_arrays(building, _layout(blocks, spans, weighted=weighted))
    return digests


def open_lazy_index(directory: Path, manifest: Manifest) -> LazyIndex | None:
    """Map the index in `directory`; None where it is not there, or was made of other footers."""
    digests = manifest.array_digests
    blocks, spans = (
        _open_places(directory / name, width, digests.get(name, ""))
        for name, width in ((BLOCKS, len(BLOCK_FIELDS)), (SPANS, SPAN_FIELDS))
    )
    heads = map_array(directory / HEADS, "u1", manifest.heads_bytes, digests.get(HEADS, ""))
    if blocks is None or spans is None or heads is None:
        return None
    arrays = BlockArrays.open(directory, _layout(blocks, spans, weighted=manifest.has_weights))
    if arrays is None:
        return None
    found = arrays.arrays
    tables = Tables(
        lengths=found[LENGTHS],
        first_targets=found[FIRST_TARGETS],
        targets=found[TARGETS],
        weights=found.get(WEIGHTS),
        blocks=by_shard(found[BLOCKS].reshape(-1, len(BLOCK_FIELDS)), len(manifest.shards)),
        fetch=FetchTables.of(found[SPANS].reshape(-1, SPAN_FIELDS), heads, manifest),
    )
    return LazyIndex(tables=tables, arrays=arrays, row_begins=_row_begins(blocks))


def _layout(blocks: NDArray[np.int64], spans: NDArray[np.int64], *, weighted: bool) -> Mapping[str, BlockArray]:
    count = len(blocks)
    rows = _row_begins(blocks)
    # Blocks and ranges come shard by shard: where a block's ranges begin is found by both numbers together.
    first_blocks = np.searchsorted(blocks[:, 0], spans[:, 0])
    span_begins = np.searchsorted(first_blocks + spans[:, 1], np.arange(count + 1))
    layout = {
        **{name: BlockArray(dtype="<i4", begins=rows) for name in (LENGTHS, FIRST_TARGETS, TARGETS)},
        BLOCKS: BlockArray(dtype="<i8", begins=len(BLOCK_FIELDS) * np.arange(count + 1)),
        SPANS: BlockArray(dtype="<i8", begins=SPAN_FIELDS * span_begins),
        MAX_TOKENS: BlockArray(dtype="<i8", begins=2 * np.arange(count + 1)),
    }
    return layout | ({WEIGHTS: BlockArray(dtype="<f8", begins=rows)} if weighted else {})


def _row_begins(blocks: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate(([0], np.cumsum(blocks[:, BLOCK_FIELDS.index("rows")], dtype=np.int64)))


def _open_places(path: Path, width: int, digest: str) -> NDArray[np.int64] | None:
    """Records of `width` numbers, if their first fields are those that were written."""
    if not path.is_file():
        return None
    found: NDArray[Any] | None = map_array(path, "<i8", path.stat().st_size // 8)
    if found is None or len(found) % width:
        return None
    records = found.reshape(-1, width)
    return records if _digest_of_places(records) == digest else None


def _digest_of_places(records: NDArray[np.int64]) -> str:
    return xxhash.xxh3_128_hexdigest(np.ascontiguousarray(records[:, :_PLACE_FIELDS]).data)
