"""A store cut to a longest sample: which rows are served, how long, with how many targets.

    length, first target of each row ──> kept? ──> numbers of the kept rows (identity if all are)
                                          └ long ─> targets within the prefix (read once, then cached)

Everything per row is a mapped file in the index directory; nothing is a Python object per row.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dataserver.errors import InvalidRequestError, OutOfRangeError, StoreRefusedError
from dataserver.run_spec import LongRows
from dataserver.stores.index import Building, map_array
from dataserver.stores.manifest import INDEX_VERSION
from dataserver.stores.tables import NO_TARGET, Tables

if TYPE_CHECKING:
    from dataserver.stores.store import Store

REASONS = ("", "empty", "no_target", "target_cut_off", "too_long")
"""Why a row is not served; a verdict is an index into this, and 0 is a kept row."""

_FIGURES = "figures.json"
_ROWS = "rows.i8"
_TARGETS = "targets.i4"

_CHUNK_ROWS = 1 << 20
_CHUNK_TOKENS = 1 << 22


@dataclass(frozen=True, slots=True, kw_only=True)
class _Figures:
    """What a view sums up; `cut_tokens` are lost to truncation, `long_rows` are kept rows that are cut."""

    rows: int
    kept_tokens: int
    cut_tokens: int
    long_rows: int
    dropped: dict[str, int]


class StoreView:
    """The rows of a store that are served, numbered from 0 in store order.

    `kept`: int64[rows], their numbers in the store, or None where every row is kept.
    `prefix_targets`: int32[rows], or None where no kept row is cut.
    """

    def __init__(
        self,
        *,
        store: "Store",
        tables: Tables,
        max_length: int,
        long_rows: LongRows,
        figures: _Figures,
        kept: NDArray[np.int64] | None,
        prefix_targets: NDArray[np.int32] | None,
    ) -> None:
        self.store = store
        self.max_length = max_length
        self.long_rows = long_rows
        self._tables = tables
        self._figures = figures
        self._kept = kept
        self._prefix_targets = prefix_targets

    @property
    def rows(self) -> int:
        """Rows that are served."""
        return self._figures.rows

    @property
    def dropped(self) -> Mapping[str, int]:
        """How many rows are not served, by reason; reasons without rows are left out."""
        return self._figures.dropped

    @property
    def kept_tokens(self) -> int:
        """Tokens that are served."""
        return self._figures.kept_tokens

    @property
    def cut_tokens(self) -> int:
        """Tokens of served rows that are lost to truncation."""
        return self._figures.cut_tokens

    def store_rows(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Row numbers in the store, int64[n]; raises `OutOfRangeError` for a row that is not served."""
        broken = (rows < 0) | (rows >= self.rows)
        if broken.any():
            raise OutOfRangeError(
                f"There is no row {rows[broken][0]} among the {self.rows} rows served of '{self.store.path}'."
            )
        return rows if self._kept is None else self._kept[rows]

    def lengths(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Tokens served of each row, int64[n]."""
        return self._served(self.store_rows(rows))

    def targets(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Targets among the served positions from 1 on, int64[n], each at least 1."""
        store_rows = self.store_rows(rows)
        if self._prefix_targets is not None:
            return self._prefix_targets[rows].astype(np.int64)
        return self._tables.targets[store_rows].astype(np.int64)

    def read_into(
        self,
        rows: NDArray[np.int64],
        tokens: NDArray[Any],
        loss_mask: NDArray[np.uint8],
        starts: NDArray[np.int64],
    ) -> None:
        """Copy what is served of each row to `starts[i]` on.

        `rows`, `starts`: int64[n]. `tokens`: unsigned integers [m], at least as wide as the store's
        `token_bytes`. `loss_mask`: uint8[m], gets 0 and 1. Positions between rows are left alone.
        Raises `StoreDamagedError` if a shard changed since it was admitted.
        """
        if tokens.itemsize < self.store.token_bytes:
            raise InvalidRequestError(
                f"tokens of {tokens.itemsize} bytes cannot hold those of '{self.store.path}', "
                f"which need {self.store.token_bytes}"
            )
        store_rows = self.store_rows(rows)
        self.store.copy(store_rows, self._served(store_rows), starts, tokens, loss_mask)

    def verdict(self, store_row: int) -> tuple[bool, str]:
        """Whether a row of the store is served, and why not (empty if it is)."""
        if not 0 <= store_row < self.store.rows:
            raise OutOfRangeError(f"There is no row {store_row} in '{self.store.path}'.")
        reason = REASONS[int(self.verdicts(store_row, store_row + 1)[0])]
        return reason == "", reason

    def verdicts(self, begin: int, end: int) -> NDArray[Any]:
        """The verdict on each row of the store from `begin` up to `end`, as an index into `REASONS`, int8[n]."""
        lengths, first_targets = self._tables.lengths[begin:end], self._tables.first_targets[begin:end]
        return verdicts(lengths, first_targets, self.max_length, self.long_rows)

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen_view, (self.store, self.max_length, self.long_rows)

    def _served(self, store_rows: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.minimum(self._tables.lengths[store_rows], self.max_length).astype(np.int64)


def open_view(store: "Store", tables: Tables, max_length: int, long_rows: LongRows) -> StoreView:
    """The view, from the index directory, where it is computed first if need be.

    Raises `StoreRefusedError` for the first row that `long_rows = refuse` refuses.
    """
    if max_length < 1:
        raise InvalidRequestError(f"max_length = {max_length}: give at least 1")
    name = f"{store.fingerprint}-{INDEX_VERSION}-{max_length}-{long_rows}"
    directory = store.index_dir / "views" / name
    view = _load(store, tables, max_length, long_rows, directory)
    while view is None:
        # Again if someone deleted the index in between: it may be deleted at any time.
        with Building(store.index_dir) as building:
            figures = _select(building, tables, store, max_length, long_rows)
            if figures.long_rows:
                _count_prefix_targets(building, tables, store, max_length, figures)
            building.write_json(_FIGURES, asdict(figures))
            building.publish(directory)
        view = _load(store, tables, max_length, long_rows, directory)
    return view


def _reopen_view(store: "Store", max_length: int, long_rows: LongRows) -> StoreView:
    return store.selection(max_length, long_rows)


def _load(store: "Store", tables: Tables, max_length: int, long_rows: LongRows, directory: Path) -> StoreView | None:
    """The view in `directory`; None where it is not there, or not whole."""
    try:
        figures = _Figures(**json.loads((directory / _FIGURES).read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError, TypeError):
        return None
    kept = map_array(directory / _ROWS, "<i8", figures.rows) if figures.dropped else None
    prefix_targets = map_array(directory / _TARGETS, "<i4", figures.rows) if figures.long_rows else None
    if (figures.dropped and kept is None) or (figures.long_rows and prefix_targets is None):
        return None
    return StoreView(
        store=store,
        tables=tables,
        max_length=max_length,
        long_rows=long_rows,
        figures=figures,
        kept=kept,
        prefix_targets=prefix_targets,
    )


def verdicts(lengths: NDArray[Any], first_targets: NDArray[Any], max_length: int, long_rows: LongRows) -> NDArray[Any]:
    """An index into `REASONS` for each row, int8[n].

    A row is kept if a target stands at a position from 1 up to `max_length` - 1: position 0 has
    nothing before it from which to be predicted.
    """
    found = np.zeros(len(lengths), dtype=np.int8)
    found[first_targets >= max_length] = REASONS.index("target_cut_off")
    if long_rows is LongRows.DROP:
        found[lengths > max_length] = REASONS.index("too_long")
    found[first_targets == NO_TARGET] = REASONS.index("no_target")
    found[lengths == 0] = REASONS.index("empty")
    return found


def _select(building: Building, tables: Tables, store: "Store", max_length: int, long_rows: LongRows) -> _Figures:
    """Write the numbers of the kept rows, unless that is all of them; sum up."""
    counts = np.zeros(len(REASONS), dtype=np.int64)
    kept_tokens = cut_tokens = long_count = 0
    building.append(_ROWS, np.zeros(0, dtype=np.int64))
    for begin in range(0, store.rows, _CHUNK_ROWS):
        lengths = tables.lengths[begin : begin + _CHUNK_ROWS].astype(np.int64)
        first_targets = tables.first_targets[begin : begin + _CHUNK_ROWS]
        if long_rows is LongRows.REFUSE:
            _refuse_long(begin, lengths, first_targets, max_length)
        found = verdicts(lengths, first_targets, max_length, long_rows)
        kept = np.flatnonzero(found == 0)
        counts += np.bincount(found, minlength=len(REASONS))
        over = np.maximum(lengths[kept] - max_length, 0)
        cut_tokens += int(over.sum())
        kept_tokens += int(lengths[kept].sum() - over.sum())
        long_count += int(np.count_nonzero(over))
        building.append(_ROWS, kept + begin)
    if counts[0] == store.rows:
        building.drop(_ROWS)
    return _Figures(
        rows=int(counts[0]),
        kept_tokens=kept_tokens,
        cut_tokens=cut_tokens,
        long_rows=long_count,
        dropped={reason: int(counts[at]) for at, reason in enumerate(REASONS) if at and counts[at]},
    )


def _refuse_long(begin: int, lengths: NDArray[np.int64], first_targets: NDArray[np.int32], max_length: int) -> None:
    """Rows without any target are dropped whatever their length, and refuse nothing."""
    refused = np.flatnonzero((lengths > max_length) & (first_targets != NO_TARGET))
    if len(refused):
        at = int(refused[0])
        raise StoreRefusedError(
            f"Row {begin + at}: input_ids has {lengths[at]} tokens, more than max_length = {max_length}, "
            "and long_rows = refuse. Raise max_length, or let long_rows be truncate or drop.",
            row=begin + at,
            column="input_ids",
        )


def _count_prefix_targets(
    building: Building, tables: Tables, store: "Store", max_length: int, figures: _Figures
) -> None:
    """Write the targets of every kept row within its served prefix; only masks of cut rows are read."""
    kept = building.read(_ROWS, "<i8", figures.rows) if figures.dropped else None
    for begin in range(0, figures.rows, _CHUNK_ROWS):
        end = min(begin + _CHUNK_ROWS, figures.rows)
        rows = np.arange(begin, end, dtype=np.int64) if kept is None else kept[begin:end]
        counts = tables.targets[rows].astype("<i4")
        long_at = np.flatnonzero(tables.lengths[rows] > max_length)
        step = max(1, _CHUNK_TOKENS // max_length)
        for first in range(0, len(long_at), step):
            at = long_at[first : first + step]
            counts[at] = _prefix_targets(store, rows[at], max_length)
        building.append(_TARGETS, counts)


def _prefix_targets(store: "Store", rows: NDArray[np.int64], max_length: int) -> NDArray[np.int64]:
    """Targets at positions 1 up to `max_length` - 1 of rows that are longer than that."""
    mask = np.zeros(len(rows) * max_length, dtype=np.uint8)
    lengths = np.full(len(rows), max_length, dtype=np.int64)
    store.copy(rows, lengths, np.arange(len(rows), dtype=np.int64) * max_length, None, mask)
    counts: NDArray[np.int64] = mask.reshape(len(rows), max_length)[:, 1:].sum(axis=1, dtype=np.int64)
    return counts
