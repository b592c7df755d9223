"""A lazily admitted store cut to a longest sample: every row has a number, and those that are dropped have no length.

    rows ──> blocks known? ──no──> `UnknownBlocksError`: whoever may wait touches them, and asks again
                └ yes ──> length, first target ──> served length, 0 where nothing is served
                           └ longer ─> targets within the prefix: counted when the block is touched, then kept

So which rows are dropped need not be known before positions are counted, and nothing has to be counted anew when it is.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dataserver.errors import InvalidRequestError, OutOfRangeError, StoreDamagedError, StoreRefusedError
from dataserver.run_spec import LongRows
from dataserver.stores.ahead import BlockRef
from dataserver.stores.block_arrays import BlockArray, BlockArrays, reserve_arrays
from dataserver.stores.destination import Destination
from dataserver.stores.index import Building
from dataserver.stores.index_use import mark_used
from dataserver.stores.lazy_index import lazy_path
from dataserver.stores.long_rows import prefix_targets, served_weights
from dataserver.stores.manifest import WEIGHTS
from dataserver.stores.selection import Figures, refuse_long, verdicts
from dataserver.stores.served import ServedRows, ViewedStore, check_width
from dataserver.stores.tables import TARGETS, Tables
from dataserver.stores.touching import Touching


class LazyView:
    """All rows of a lazily admitted store; see `served.ServedRows`. Safe to use from several threads."""

    def __init__(
        self,
        *,
        store: ViewedStore,
        touching: Touching,
        max_length: int,
        long_rows: LongRows,
        prefixes: BlockArrays,
    ) -> None:
        self.store = store
        self.max_length = max_length
        self.long_rows = long_rows
        self._touching = touching
        self._tables: Tables = touching.index.tables
        self._shard_rows = touching.shard_rows
        self._prefixes = prefixes
        blocks = len(touching.index.row_begins) - 1
        # Found out by this process: what is needed of the block is known, and whether any of its rows is cut.
        self._ready = np.zeros(blocks, dtype=np.bool_)
        self._has_cut = np.zeros(blocks, dtype=np.bool_)

    @property
    def rows(self) -> int:
        """All rows of the store."""
        return int(self._touching.index.row_begins[-1])

    @property
    def figures(self) -> Figures:
        """Nothing is known beforehand but how many rows there are."""
        return Figures(rows=self.rows, kept_tokens=0, cut_tokens=0, long_rows=0, dropped={})

    @property
    def dropped(self) -> Mapping[str, int]:
        """Not known: empty."""
        return {}

    @property
    def kept_tokens(self) -> int:
        """Not known: 0."""
        return 0

    @property
    def cut_tokens(self) -> int:
        """Not known: 0."""
        return 0

    def store_rows(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The same numbers."""
        broken = (rows < 0) | (rows >= self.rows)
        if broken.any():
            raise OutOfRangeError(
                f"There is no row {rows[broken][0]} in '{self.store.path}', which has {self.rows} rows."
            )
        return rows

    def block_rows(self) -> NDArray[np.int64]:
        """All rows of each block."""
        return np.diff(self._touching.index.row_begins)

    def lengths(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Tokens served of each row, int64[n]; 0 for a row that is dropped."""
        self._require(rows)
        kept = verdicts(self._tables, rows, self.max_length, self.long_rows) == 0
        return np.where(kept, np.minimum(self._tables.lengths[rows], self.max_length), 0).astype(np.int64)

    def offsets(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """No row is split."""
        return np.zeros(len(rows), dtype=np.int64)

    def targets(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """See `served.ServedRows`."""
        return self._per_row(rows, self._tables.targets, TARGETS).astype(np.int64)

    def weights(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """See `served.ServedRows`."""
        if self._tables.weights is None:
            raise InvalidRequestError(f"'{self.store.path}' has no column loss_weight.")
        return self._per_row(rows, self._tables.weights, WEIGHTS)

    def has_images(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Stores with images are not admitted lazily."""
        return np.zeros(len(rows), dtype=np.bool_)

    def highest_token(self, rows: NDArray[np.int64]) -> tuple[int, int]:
        """Of the blocks of `rows`: (-1, 0) for none."""
        self._require(rows)
        found = [self._touching.index.max_token(block) for block in np.unique(self._touching.blocks_of(rows)).tolist()]
        return max(found, key=lambda each: (each[0], -each[1]), default=(-1, 0))

    def read(
        self,
        rows: NDArray[np.int64],
        lengths: NDArray[np.int64],
        into: Destination,
        numbers: NDArray[np.int64] | None = None,
    ) -> None:
        """See `served.ServedRows`."""
        check_width(self.store, into)
        self._require(rows)
        self._shard_rows.read(rows, lengths, into, numbers)

    @property
    def decodes(self) -> bool:
        """Always: nothing is mapped whose layout nobody has seen."""
        return True

    def blocks(self, rows: NDArray[np.int64]) -> list[BlockRef]:
        """See `served.ServedRows`."""
        self._require(rows)
        return self._shard_rows.blocks(self.store_rows(rows))

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen_view, (self.store, self.max_length, self.long_rows)

    def _require(self, rows: NDArray[np.int64]) -> None:
        blocks = self._touching.blocks_of(self.store_rows(rows))
        self._touching.require_blocks(blocks, lambda asked: self._ready[asked], self._is_ready, self._touch)

    def _is_ready(self, block: int) -> bool:
        """Whether all is known of a block; raises `StoreDamagedError` for a long row where `long_rows` refuses them."""
        if not self._touching.index.arrays.knows(block):
            return False
        rows = self._rows_of(block)
        lengths = self._tables.lengths[rows]
        found = verdicts(self._tables, rows, self.max_length, self.long_rows)
        if self.long_rows is LongRows.REFUSE:
            try:
                refuse_long(rows.start, lengths, found, self.max_length)
            except StoreRefusedError as error:
                raise StoreDamagedError(error.message, **error.details) from error
        self._has_cut[block] = bool(((found == 0) & (lengths > self.max_length)).any())
        self._ready[block] = not self._has_cut[block] or self._prefixes.knows(block)
        return bool(self._ready[block])

    def _touch(self, block: int) -> None:
        self._touching.touch(block)
        if self._is_ready(block):
            return
        span = self._rows_of(block)
        rows = np.arange(span.start, span.stop, dtype=np.int64)
        kept = verdicts(self._tables, rows, self.max_length, self.long_rows) == 0
        cut = np.flatnonzero(kept & (self._tables.lengths[rows] > self.max_length))
        found: dict[str, NDArray[Any]] = {TARGETS: self._tables.targets[rows]}
        found[TARGETS][cut] = prefix_targets(self._shard_rows, rows[cut], self.max_length)
        if self._tables.weights is not None:
            lengths = np.full(len(cut), self.max_length, dtype=np.int64)
            found[WEIGHTS] = self._tables.weights[rows]
            found[WEIGHTS][cut] = served_weights(self._shard_rows, rows[cut], np.zeros_like(lengths), lengths)
        self._prefixes.fill(block, found)
        self._ready[block] = True

    def _per_row(self, rows: NDArray[np.int64], whole: NDArray[Any], name: str) -> NDArray[Any]:
        """What the prefixes say where a block has cut rows, and `whole` elsewhere; 0 for what is not served."""
        served = self.lengths(rows) > 0
        cut = self._has_cut[self._touching.blocks_of(rows)]
        return np.where(served, np.where(cut, self._prefixes.arrays[name][rows], whole[rows]), 0)

    def _rows_of(self, block: int) -> slice:
        return slice(*self._touching.index.row_begins[block : block + 2].tolist())


def open_lazy_view(store: ViewedStore, touching: Touching, max_length: int, long_rows: LongRows) -> LazyView:
    """The view, whose prefixes are kept in the index directory."""
    directory = lazy_path(store.index_dir, store.fingerprint, store.path, f"-{max_length}-{long_rows}")
    rows = touching.index.row_begins
    layout = {TARGETS: BlockArray(dtype="<i4", begins=rows)}
    if touching.index.tables.weights is not None:
        layout[WEIGHTS] = BlockArray(dtype="<f8", begins=rows)
    prefixes = BlockArrays.open(directory, layout)
    while prefixes is None:
        # Again if someone deleted the index in between: it may be deleted at any time.
        with Building(store.index_dir) as building:
            reserve_arrays(building, layout)
            building.publish(directory, lambda path: BlockArrays.open(path, layout) is not None)
        prefixes = BlockArrays.open(directory, layout)
    mark_used(directory)
    return LazyView(
        store=store,
        touching=touching,
        max_length=max_length,
        long_rows=long_rows,
        prefixes=prefixes,
    )


def _reopen_view(store: ViewedStore, max_length: int, long_rows: LongRows) -> ServedRows:
    return store.selection(max_length, long_rows)
