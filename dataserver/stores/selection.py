"""Which rows are kept for one longest sample, and what that comes to.

    length, first target of each row ──> verdict ──> figures                          (`sum_up`, writes nothing)
                                          ├──────> numbers of the kept rows, figures  (`select`, the files of a view)
                                          └ long ──> targets within the prefix        (their masks are read once)

Works through the rows in chunks, so that memory is bounded at any number of them.

Which rows are kept decides which sample stands at which position: any change of the rules here,
or of what the index calls a first target, raises ORDER_VERSION in `planning.fingerprint`.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dataserver.errors import InvalidRequestError, StoreRefusedError
from dataserver.run_spec import LongRows
from dataserver.stores.index import Building
from dataserver.stores.long_rows import prefix_targets, served_weights
from dataserver.stores.shard_rows import ShardRows
from dataserver.stores.split import list_pieces, piece_counts, tail_tokens
from dataserver.stores.tables import NO_FIRST_TARGET, Tables

REASONS = ("", "empty", "no_target", "target_cut_off", "too_long", "image_too_long")
"""Why a row is not served; a verdict is an index into this, and 0 is a kept row."""

FIGURES = "figures.json"
ROWS = "rows.i8"
OFFSETS = "offsets.i4"
TARGETS = "targets.i4"
WEIGHTS = "weights.f8"

_CHUNK_ROWS = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What is served for one longest sample.

    `rows` counts samples: where long rows are split, their pieces. `cut_tokens` are lost to truncation, or to last
    pieces of one token; `long_rows` are kept rows that are cut or split, `dropped` counts the other rows by reason
    (reasons without rows are left out).
    """

    rows: int
    kept_tokens: int
    cut_tokens: int
    long_rows: int
    dropped: dict[str, int]


def verdicts(tables: Tables, rows: slice | NDArray[np.int64], max_length: int, long_rows: LongRows) -> NDArray[np.int8]:
    """An index into `REASONS` for each of `rows`, int8[n].

    A row is kept if a target stands at a position from 1 up to `max_length` - 1: position 0 has
    nothing before it from which to be predicted. Rows with images are never cut, so a longer one is not kept.
    """
    lengths, first_targets = tables.lengths[rows], tables.first_targets[rows]
    found = np.zeros(len(lengths), dtype=np.int8)
    found[first_targets >= max_length] = REASONS.index("target_cut_off")
    if long_rows is LongRows.DROP:
        found[lengths > max_length] = REASONS.index("too_long")
    if tables.image_flags is not None:
        found[(tables.image_flags[rows] > 0) & (lengths > max_length)] = REASONS.index("image_too_long")
    found[first_targets == NO_FIRST_TARGET] = REASONS.index("no_target")
    found[lengths == 0] = REASONS.index("empty")
    return found


def sum_up(
    tables: Tables,
    max_length: int,
    long_rows: LongRows,
    kept: Callable[[NDArray[np.int64], NDArray[np.int64]], None] = lambda *_: None,
) -> Figures:
    """The figures, in one pass over the index that writes nothing.

    `kept` is given numbers and lengths of the kept rows, in chunks.

    Takes about 2 s for 10^8 rows, and 25 MB for any number. Raises `InvalidRequestError` for a `max_length` below 1,
    and `StoreRefusedError` for the first row that `long_rows = refuse` refuses.
    """
    if max_length < 1:
        raise InvalidRequestError(f"max_length = {max_length}: give at least 1")
    counts = np.zeros(len(REASONS), dtype=np.int64)
    samples = kept_tokens = cut_tokens = long_count = 0
    for begin in range(0, len(tables.lengths), _CHUNK_ROWS):
        chunk = slice(begin, begin + _CHUNK_ROWS)
        lengths = tables.lengths[chunk].astype(np.int64)
        found = verdicts(tables, chunk, max_length, long_rows)
        if long_rows is LongRows.REFUSE:
            refuse_long(begin, lengths, found, max_length)
        rows = np.flatnonzero(found == 0)
        counts += np.bincount(found, minlength=len(REASONS))
        found_lengths = lengths[rows]
        if long_rows is LongRows.SPLIT:
            samples += int(piece_counts(found_lengths, max_length).sum())
            cut = int(tail_tokens(found_lengths, max_length).sum())
        else:
            samples += len(rows)
            cut = int(np.maximum(found_lengths - max_length, 0).sum())
        cut_tokens += cut
        kept_tokens += int(found_lengths.sum()) - cut
        long_count += int(np.count_nonzero(found_lengths > max_length))
        kept(rows + begin, found_lengths)
    return Figures(
        rows=samples,
        kept_tokens=kept_tokens,
        cut_tokens=cut_tokens,
        long_rows=long_count,
        dropped={reason: int(counts[at]) for at, reason in enumerate(REASONS) if at and counts[at]},
    )


def check_usable(path: Path | str, max_length: int, figures: Figures) -> None:
    """Raise `StoreRefusedError` if no row of the store at `path` is served."""
    if figures.rows == 0:
        dropped = ", ".join(f"{count} {reason}" for reason, count in figures.dropped.items()) or "no rows"
        raise StoreRefusedError(
            f"Pretokenized dataset at '{path}' produced 0 usable examples. "
            f"(max_length {max_length}, dropped: {dropped})"
        )


def select(building: Building, tables: Tables, shard_rows: ShardRows, max_length: int, long_rows: LongRows) -> None:
    """Write a view's files.

    `FIGURES`; `ROWS` unless every row is kept whole or as a prefix; `OFFSETS` if kept rows are split, `TARGETS` if they
    are cut, and `WEIGHTS` in both cases where targets have any. Raises as `sum_up` does.
    """
    building.append(ROWS, np.zeros(0, dtype=np.int64))
    if long_rows is LongRows.SPLIT:
        building.append(OFFSETS, np.zeros(0, dtype=np.int32))

    def keep(rows: NDArray[np.int64], lengths: NDArray[np.int64]) -> None:
        if long_rows is not LongRows.SPLIT:
            building.append(ROWS, rows)
            return
        for piece_rows, offsets in list_pieces(rows, lengths, max_length):
            building.append(ROWS, piece_rows)
            building.append(OFFSETS, offsets)

    figures = sum_up(tables, max_length, long_rows, kept=keep)
    split = long_rows is LongRows.SPLIT and figures.long_rows > 0
    if long_rows is LongRows.SPLIT and not split:
        building.drop(OFFSETS)
    if not figures.dropped and not split:
        building.drop(ROWS)
    if figures.long_rows and not split:
        _count_prefix_targets(building, tables, shard_rows, max_length, figures)
    if figures.long_rows and tables.weights is not None:
        _sum_served_weights(building, tables, shard_rows, max_length, figures, whole=tables.weights, split=split)
    building.write_json(FIGURES, {"figures": asdict(figures), "digests": building.digests()})


def refuse_long(begin: int, lengths: NDArray[Any], found: NDArray[np.int8], max_length: int) -> None:
    """Rows without any target, or with images, are dropped whatever their length, and refuse nothing."""
    refused = np.flatnonzero((lengths > max_length) & np.isin(found, (0, REASONS.index("target_cut_off"))))
    if len(refused):
        at = int(refused[0])
        raise StoreRefusedError(
            f"Row {begin + at}: input_ids has {lengths[at]} tokens, more than max_length = {max_length}, "
            "and long_rows = refuse. Raise max_length, or let long_rows be truncate or drop.",
            row=begin + at,
            column="input_ids",
        )


def _count_prefix_targets(
    building: Building, tables: Tables, shard_rows: ShardRows, max_length: int, figures: Figures
) -> None:
    """Write the targets of every kept row within its served prefix; only masks of cut rows are read."""
    kept = building.read(ROWS, "<i8", figures.rows) if figures.dropped else None
    for begin in range(0, figures.rows, _CHUNK_ROWS):
        end = min(begin + _CHUNK_ROWS, figures.rows)
        rows = np.arange(begin, end, dtype=np.int64) if kept is None else kept[begin:end]
        counts = tables.targets[rows].astype("<i4")
        long_at = np.flatnonzero(tables.lengths[rows] > max_length)
        counts[long_at] = prefix_targets(shard_rows, rows[long_at], max_length)
        building.append(TARGETS, counts)


def _sum_served_weights(
    building: Building,
    tables: Tables,
    shard_rows: ShardRows,
    max_length: int,
    figures: Figures,
    *,
    whole: NDArray[np.float64],
    split: bool,
) -> None:
    """Write what the targets weigh that are served of each kept row; only cut and split rows are read."""
    kept = building.read(ROWS, "<i8", figures.rows) if figures.dropped or split else None
    offsets = building.read(OFFSETS, "<i4", figures.rows) if split else None
    for begin in range(0, figures.rows, _CHUNK_ROWS):
        end = min(begin + _CHUNK_ROWS, figures.rows)
        rows = np.arange(begin, end, dtype=np.int64) if kept is None else kept[begin:end]
        starts = np.zeros(len(rows), dtype=np.int64) if offsets is None else offsets[begin:end].astype(np.int64)
        sums = whole[rows].copy()
        long_at = np.flatnonzero(tables.lengths[rows] > max_length)
        lengths = np.minimum(tables.lengths[rows[long_at]] - starts[long_at], max_length).astype(np.int64)
        sums[long_at] = served_weights(shard_rows, rows[long_at], starts[long_at], lengths)
        building.append(WEIGHTS, sums)
