"""Which shards of a store are read together, and how: consecutive ones that are mapped and laid out alike are one span.

shards  a.arrow  b.arrow  c.parquet  d.arrow      rows are numbered through within a span, and where its
spans   |------ 0 ------| |-- 1 ---| |- 2 -|      columns lie is known of all of its shards at once
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import groupby
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dataserver.stores.manifest import ColumnLayout, Shard, ShardLayout
from dataserver.stores.tables import BLOCK_FIELDS, Blocks

# A process may have 65,530 maps on Linux.
_MOST_SHARDS: Final = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """The shards from number `begin` up to `end`; `layout` is None for a single one that is decoded."""

    begin: int
    end: int
    layout: ShardLayout | None


def neighbours_of(shards: Sequence[Shard]) -> tuple[Neighbours, ...]:
    """Cut the shards of a store into neighbours."""
    found: list[Neighbours] = []
    for layout, members in groupby(range(len(shards)), key=lambda number: shards[number].layout):
        numbers = list(members)
        most = _MOST_SHARDS if layout is not None and _is_joinable(layout) else 1
        starts = range(numbers[0], numbers[-1] + 1, most)
        found += [Neighbours(begin=start, end=min(start + most, numbers[-1] + 1), layout=layout) for start in starts]
    return tuple(found)


def joined(blocks: Sequence[Blocks], begins: NDArray[np.int64], layout: ShardLayout) -> Blocks:
    """The blocks of shards that are mapped jointly, shard i from byte `begins[i]` on, as those of one shard."""
    table = np.concatenate([part.table for part in blocks])
    shifts = np.repeat(begins, [len(part.table) for part in blocks])
    for name, column in _columns(layout):
        bits = 1 if column.values == "bool" else np.dtype(column.values).itemsize * 8
        table[:, BLOCK_FIELDS.index(f"{name}_values")] += shifts * 8 // bits
        if column.offsets != "fixed":
            table[:, BLOCK_FIELDS.index(f"{name}_offsets")] += shifts // np.dtype(column.offsets).itemsize
    row_begins = np.zeros(len(table) + 1, dtype=np.int64)
    np.cumsum(table[:, BLOCK_FIELDS.index("rows")], out=row_begins[1:])
    return Blocks(table=table, row_begins=row_begins)


def _is_joinable(layout: ShardLayout) -> bool:
    """Whether blocks say where everything lies that is served."""
    parts = [getattr(layout, field.name) for field in fields(layout)]
    return all(part is None or isinstance(part, ColumnLayout) for part in parts)


def _columns(layout: ShardLayout) -> list[tuple[str, ColumnLayout]]:
    parts = [(field.name, getattr(layout, field.name)) for field in fields(layout)]
    return [(name, part) for name, part in parts if isinstance(part, ColumnLayout)]
