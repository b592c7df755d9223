"""List columns of numbers, flat or nested one level, as flat rows: what images are stored in.

    [[1.0, 2.0], [3.0, 4.0]]  ──> values [1.0, 2.0, 3.0, 4.0], 2 lists of 2
    [1.0, 2.0, 3.0, 4.0]      ──> values [1.0, 2.0, 3.0, 4.0], width unknown

A null row and an empty one hold nothing, and are the same here.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dataserver.stores.ragged import (
    VALUE_TYPES,
    ArrowArray,
    Ragged,
    check_inside,
    is_list,
    null_rows_of,
    spans_of,
    storage_of,
    type_refusal,
)

WANTED = "lists of numbers, flat or nested one level"


@dataclass(frozen=True, slots=True, kw_only=True)
class Nested:
    """n rows of numbers. `values`: those of a row end to end, none for a null row.

    `lists`, `widths`: int64[n], how many inner lists a row has and how long the first is; None where rows are flat.
    `uneven`: bool[n], rows whose inner lists differ in length, or one of which is null.
    """

    values: Ragged
    lists: NDArray[np.int64] | None
    widths: NDArray[np.int64] | None
    uneven: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.values)

    @property
    def filled(self) -> NDArray[np.bool_]:
        """Rows that hold numbers, bool[n]."""
        return self.values.lengths > 0

    def rows(self, begin: int, end: int) -> "Nested":
        """Rows `begin` up to `end`."""
        return Nested(
            values=self.values.rows(begin, end),
            lists=None if self.lists is None else self.lists[begin:end],
            widths=None if self.widths is None else self.widths[begin:end],
            uneven=self.uneven[begin:end],
        )


def nested(array: ArrowArray, *, shard: str, column: str) -> Nested:
    """View the Arrow array `array` as rows of numbers; raise `StoreRefusedError` for other types."""
    declared = array.type
    array = storage_of(array)
    starts, lengths, child = spans_of(array, shard, column)
    nulls = null_rows_of(array)
    if nulls is not None:
        lengths = np.where(nulls, 0, lengths)
    child = storage_of(child)
    check_inside(starts, lengths, len(child), shard, column)
    if not is_list(child.type):
        kind = _numbers(child.type, declared, shard, column)
        flat = Ragged(starts=starts, lengths=lengths, child=child, value_type=kind, null_rows=None)
        return Nested(values=flat, lists=None, widths=None, uneven=np.zeros(len(starts), dtype=np.bool_))
    inner_starts, inner_lengths, values = spans_of(child, shard, column)
    values = storage_of(values)
    check_inside(inner_starts, inner_lengths, len(values), shard, column)
    first, last = np.minimum(starts, len(child)), starts + np.maximum(lengths, 1) - 1
    filled = lengths > 0
    before = np.concatenate(([0], np.cumsum(inner_lengths)))
    changes = np.concatenate(([0], np.cumsum(_breaks(inner_starts, inner_lengths, null_rows_of(child)))))
    widths, begins, uneven = (np.zeros(len(starts), dtype=np.int64) for _ in range(3))
    widths[filled] = inner_lengths[first[filled]]
    begins[filled] = inner_starts[first[filled]]
    uneven[filled] = changes[2 * last[filled] + 1] - changes[2 * first[filled]]
    totals = np.where(filled, before[first + lengths] - before[first], 0)
    kind = _numbers(values.type, declared, shard, column)
    flat = Ragged(starts=begins, lengths=totals, child=values, value_type=kind, null_rows=None)
    return Nested(values=flat, lists=lengths, widths=widths, uneven=uneven > 0)


def _breaks(
    starts: NDArray[np.int64], lengths: NDArray[np.int64], nulls: NDArray[np.bool_] | None
) -> NDArray[np.bool_]:
    """Where inner lists are no matrix, bool[2n]: list i is null at 2i, and does not continue list i - 1 at 2i - 1."""
    found = np.zeros(2 * len(starts), dtype=np.bool_)
    if nulls is not None:
        found[::2] = nulls
    if len(starts):
        found[1:-1:2] = (lengths[1:] != lengths[:-1]) | (starts[1:] != starts[:-1] + lengths[:-1])
    return found


def _numbers(kind: object, declared: object, shard: str, column: str) -> str:
    """The numpy dtype name of the values' Arrow type `kind`."""
    value_type = VALUE_TYPES.get(kind)
    if value_type is None or value_type == "bool":
        raise type_refusal(declared, shard=shard, column=column, wanted=WANTED)
    return value_type
