"""A store cut to a longest sample: which rows are served, how long, with how many targets.

    length, first target of each row ──> kept? ──> numbers of the kept rows (identity if all are)
                                          └ long ─> targets within the prefix (read once, then cached)

Everything per row is a mapped file in the index directory; nothing is a Python object per row.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dataserver.errors import InvalidRequestError, OutOfRangeError
from dataserver.run_spec import LongRows
from dataserver.stores.index import Building, map_array
from dataserver.stores.manifest import INDEX_VERSION
from dataserver.stores.selection import FIGURES, REASONS, ROWS, TARGETS, Figures, select, verdicts
from dataserver.stores.shard_rows import ShardRows
from dataserver.stores.tables import Tables

if TYPE_CHECKING:
    from dataserver.stores.store import Store


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
        shard_rows: ShardRows,
        max_length: int,
        long_rows: LongRows,
        figures: Figures,
        kept: NDArray[np.int64] | None,
        prefix_targets: NDArray[np.int32] | None,
    ) -> None:
        self.store = store
        self.max_length = max_length
        self.long_rows = long_rows
        self._tables = tables
        self._shard_rows = shard_rows
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
        self._shard_rows.copy(store_rows, self._served(store_rows), starts, tokens, loss_mask)

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


def open_view(store: "Store", tables: Tables, shard_rows: ShardRows, max_length: int, long_rows: LongRows) -> StoreView:
    """The view, from the index directory, where it is computed first if need be.

    Raises `StoreRefusedError` for the first row that `long_rows = refuse` refuses.
    """
    if max_length < 1:
        raise InvalidRequestError(f"max_length = {max_length}: give at least 1")
    name = f"{store.fingerprint}-{INDEX_VERSION}-{max_length}-{long_rows}"
    directory = store.index_dir / "views" / name
    view = _load(directory, store, tables, shard_rows, max_length=max_length, long_rows=long_rows)
    while view is None:
        # Again if someone deleted the index in between: it may be deleted at any time.
        with Building(store.index_dir) as building:
            select(building, tables, shard_rows, max_length, long_rows)
            building.publish(directory)
        view = _load(directory, store, tables, shard_rows, max_length=max_length, long_rows=long_rows)
    return view


def _reopen_view(store: "Store", max_length: int, long_rows: LongRows) -> StoreView:
    return store.selection(max_length, long_rows)


def _load(
    directory: Path, store: "Store", tables: Tables, shard_rows: ShardRows, *, max_length: int, long_rows: LongRows
) -> StoreView | None:
    """The view in `directory`; None where it is not there, or not whole."""
    try:
        figures = Figures(**json.loads((directory / FIGURES).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
    kept = map_array(directory / ROWS, "<i8", figures.rows) if figures.dropped else None
    prefix_targets = map_array(directory / TARGETS, "<i4", figures.rows) if figures.long_rows else None
    if (figures.dropped and kept is None) or (figures.long_rows and prefix_targets is None):
        return None
    return StoreView(
        store=store,
        tables=tables,
        shard_rows=shard_rows,
        max_length=max_length,
        long_rows=long_rows,
        figures=figures,
        kept=kept,
        prefix_targets=prefix_targets,
    )
