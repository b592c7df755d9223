"""A store cut to a longest sample: which rows are served, how long, with how many targets.

    length, first target of each row ──> kept? ──> numbers of the kept rows (identity if all are)
                                          └ long ─> targets within the prefix (read once, then cached),
                                                    or first tokens of the pieces (`split`)

Everything per row is a mapped file in the index directory; nothing is a Python object per row.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dataserver.errors import InvalidRequestError, OutOfRangeError
from dataserver.run_spec import LongRows
from dataserver.stores.ahead import BlockRef
from dataserver.stores.destination import Destination
from dataserver.stores.index import Building, map_array, unseal
from dataserver.stores.index_use import mark_used
from dataserver.stores.manifest import INDEX_VERSION
from dataserver.stores.selection import FIGURES, OFFSETS, ROWS, TARGETS, WEIGHTS, Figures, select
from dataserver.stores.served import ServedRows, ViewedStore, check_width
from dataserver.stores.shard_rows import ShardRows
from dataserver.stores.tables import Tables


class StoreView:
    """The rows that are served of an eagerly admitted store; see `served.ServedRows`. A split row counts by its pieces.

    `kept`: int64[rows], their numbers in the store, or None where every row is kept in one piece.
    `piece_offsets`: int32[rows], first token of each piece, or None where no row is split.
    `prefix_targets`: int32[rows], or None where no kept row is cut.
    `served_weights`: float64[rows], or None where no kept row is cut or split, or targets have no weights.
    """

    def __init__(
        self,
        *,
        store: ViewedStore,
        tables: Tables,
        shard_rows: ShardRows,
        max_length: int,
        long_rows: LongRows,
        figures: Figures,
        kept: NDArray[np.int64] | None,
        piece_offsets: NDArray[np.int32] | None,
        prefix_targets: NDArray[np.int32] | None,
        served_weights: NDArray[np.float64] | None,
    ) -> None:
        self.store = store
        self.max_length = max_length
        self.long_rows = long_rows
        self._tables = tables
        self._shard_rows = shard_rows
        self.figures = figures
        self._kept = kept
        self._piece_offsets = piece_offsets
        self._prefix_targets = prefix_targets
        self._served_weights = served_weights

    @property
    def rows(self) -> int:
        """Rows that are served."""
        return self.figures.rows

    @property
    def dropped(self) -> Mapping[str, int]:
        """How many rows are not served, by reason; reasons without rows are left out."""
        return self.figures.dropped

    @property
    def kept_tokens(self) -> int:
        """Tokens that are served."""
        return self.figures.kept_tokens

    @property
    def cut_tokens(self) -> int:
        """Tokens of served rows that are lost to truncation, or to last pieces of one token."""
        return self.figures.cut_tokens

    def store_rows(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Row numbers in the store, int64[n]; raises `OutOfRangeError` for a row that is not served."""
        broken = (rows < 0) | (rows >= self.rows)
        if broken.any():
            raise OutOfRangeError(
                f"There is no row {rows[broken][0]} among the {self.rows} rows served of '{self.store.path}'."
            )
        return rows if self._kept is None else self._kept[rows]

    def block_rows(self) -> NDArray[np.int64]:
        """How many rows are served of each block (record batch, row group) of the store, int64[b], in store order."""
        begins = self._shard_rows.block_begins()
        return np.diff(begins if self._kept is None else np.searchsorted(self._kept, begins))

    def lengths(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Tokens served of each row, int64[n]."""
        return self._served(rows, self.store_rows(rows))

    def offsets(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The row's token at which each begins, int64[n]: above 0 in the later pieces of a row that is split."""
        if self._piece_offsets is None:
            return np.zeros(len(rows), dtype=np.int64)
        return self._piece_offsets[rows].astype(np.int64)

    def targets(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Targets among the served positions from 1 on, int64[n], each at least 1."""
        store_rows = self.store_rows(rows)
        if self._piece_offsets is not None:
            return self._served(rows, store_rows) - 1
        if self._prefix_targets is not None:
            return self._prefix_targets[rows].astype(np.int64)
        return self._tables.targets[store_rows].astype(np.int64)

    def weights(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """What these targets weigh, float64[n]; only where the store has weights."""
        found = self._served_weights
        if found is None:
            rows, found = self.store_rows(rows), self._tables.weights
        if found is None:
            raise InvalidRequestError(f"'{self.store.path}' has no column loss_weight.")
        return found[rows]

    def has_images(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which rows have images, bool[n]."""
        flags = self._tables.image_flags
        return np.zeros(len(rows), dtype=np.bool_) if flags is None else flags[self.store_rows(rows)] > 0

    def highest_token(self, rows: NDArray[np.int64]) -> tuple[int, int]:  # noqa: ARG002 - all rows were looked at
        """Of the whole store."""
        return self.store.max_token, self.store.max_token_row

    def read(
        self,
        rows: NDArray[np.int64],
        lengths: NDArray[np.int64],
        into: Destination,
        numbers: NDArray[np.int64] | None = None,
    ) -> None:
        """See `served.ServedRows`."""
        check_width(self.store, into)
        offsets = None if self._piece_offsets is None else self.offsets(rows)
        self._shard_rows.read(self.store_rows(rows), lengths, into, numbers, offsets=offsets)

    @property
    def decodes(self) -> bool:
        """Whether rows must be decoded before they are read, be it only some."""
        return self._shard_rows.decodes

    def blocks(self, rows: NDArray[np.int64]) -> list[BlockRef]:
        """Blocks that a read of `rows` (int64[n]) needs, to be loaded ahead of it; none of what is mapped."""
        return self._shard_rows.blocks(self.store_rows(rows))

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen_view, (self.store, self.max_length, self.long_rows)

    def _served(self, rows: NDArray[np.int64], store_rows: NDArray[np.int64]) -> NDArray[np.int64]:
        left = self._tables.lengths[store_rows]
        if self._piece_offsets is not None:
            left = left - self._piece_offsets[rows]
        return np.minimum(left, self.max_length).astype(np.int64)


def open_view(
    store: ViewedStore, tables: Tables, shard_rows: ShardRows, max_length: int, long_rows: LongRows
) -> StoreView:
    """The view, from the index directory, where it is computed first if need be.

    Raises as `selection.sum_up` does.
    """
    name = f"{store.fingerprint}-{INDEX_VERSION}-{max_length}-{long_rows}"
    directory = store.index_dir / "views" / name
    view = _load(directory, store, tables, shard_rows, max_length=max_length, long_rows=long_rows)
    while view is None:
        # Again if someone deleted the index in between: it may be deleted at any time.
        with Building(store.index_dir) as building:
            select(building, tables, shard_rows, max_length, long_rows)
            building.publish(directory)
        view = _load(directory, store, tables, shard_rows, max_length=max_length, long_rows=long_rows)
    mark_used(directory)
    return view


def _reopen_view(store: ViewedStore, max_length: int, long_rows: LongRows) -> ServedRows:
    return store.selection(max_length, long_rows)


def _load(
    directory: Path, store: ViewedStore, tables: Tables, shard_rows: ShardRows, *, max_length: int, long_rows: LongRows
) -> StoreView | None:
    """The view in `directory`; None where it is not there, or not whole."""
    try:
        content = unseal((directory / FIGURES).read_text(encoding="utf-8"))
        figures, digests = Figures(**content["figures"]), content["digests"]
    except (OSError, ValueError, TypeError, KeyError):
        return None
    split = long_rows is LongRows.SPLIT and figures.long_rows > 0
    expected = {
        ROWS: ("<i8", bool(figures.dropped) or split),
        OFFSETS: ("<i4", split),
        TARGETS: ("<i4", figures.long_rows > 0 and not split),
        WEIGHTS: ("<f8", figures.long_rows > 0 and tables.weights is not None),
    }
    arrays = {
        name: map_array(directory / name, dtype, figures.rows, digests.get(name, "")) if needed else None
        for name, (dtype, needed) in expected.items()
    }
    if any(needed and arrays[name] is None for name, (_, needed) in expected.items()):
        return None
    return StoreView(
        store=store,
        tables=tables,
        shard_rows=shard_rows,
        max_length=max_length,
        long_rows=long_rows,
        figures=figures,
        kept=arrays[ROWS],
        piece_offsets=arrays[OFFSETS],
        prefix_targets=arrays[TARGETS],
        served_weights=arrays[WEIGHTS],
    )
