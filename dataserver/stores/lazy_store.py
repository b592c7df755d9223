"""A store of which only the footers were read: its blocks are checked as they are needed."""

from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from typing import Any, Never

import numpy as np
from numpy.typing import NDArray

from dataserver.errors import InvalidRequestError, InvalidSpecError, StoreRefusedError
from dataserver.run_spec import LongRows
from dataserver.stores.block_cache import BlockCache
from dataserver.stores.lazy_index import LazyIndex
from dataserver.stores.lazy_view import LazyView, open_lazy_view
from dataserver.stores.row import Row
from dataserver.stores.selection import Figures
from dataserver.stores.store import Store
from dataserver.stores.touching import Touching
from dataserver.stores.unknown_blocks import when_known

# Views that are kept: each holds a few bytes a block.
_KEPT_VIEWS = 16


class LazyStore(Store):
    """See `Store`. What it reads, it checks first: reads wait, and raise `StoreDamagedError` for a fault of a row."""

    def __init__(self, *, index: LazyIndex, cache: BlockCache, **parts: Any) -> None:  # noqa: ANN401 - those of `Store`
        super().__init__(**parts)
        self._touching = Touching(manifest=self._manifest, index=index, shard_rows=self._shard_rows, cache=cache)
        self._views = lru_cache(_KEPT_VIEWS)(partial(open_lazy_view, self, self._touching))

    def __iter__(self) -> Iterator[Row]:
        for begin, end in zip(self._touching.index.row_begins[:-1], self._touching.index.row_begins[1:], strict=True):
            yield from self.read_rows(range(begin, end)) if end > begin else ()

    def lengths(self) -> Never:
        """Not known."""
        raise self._unknown("how long its rows are")

    def lengths_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """See `Store.lengths_of`."""
        when_known(partial(self._touching.require, rows))
        return super().lengths_of(rows)

    @property
    def checked_rows(self) -> int:
        """Those of the blocks that were needed so far, by whoever shares the index directory."""
        return self._touching.checked_rows

    def read_rows(
        self, rows: Sequence[int] | NDArray[np.int64], *, max_length: int | None = None, images: bool = True
    ) -> list[Row]:
        """See `Store.read_rows`."""
        wanted = np.asarray(rows, dtype=np.int64)
        self._check_range(wanted)
        when_known(partial(self._touching.require, wanted))
        return super().read_rows(wanted, max_length=max_length, images=images)

    def figures(self, max_length: int, long_rows: LongRows = LongRows.TRUNCATE) -> Figures:
        """Not known."""
        raise self._unknown(f"what is served of it at max_length = {max_length} with long_rows = {long_rows}")

    def reasons(
        self, begin: int, end: int, max_length: int, long_rows: LongRows = LongRows.TRUNCATE
    ) -> tuple[str, ...]:
        """See `Store.reasons`."""
        if 0 <= begin <= end <= self.rows:
            when_known(partial(self._touching.require, np.arange(begin, end, dtype=np.int64)))
        return super().reasons(begin, end, max_length, long_rows)

    def view(self, max_length: int, long_rows: LongRows = LongRows.TRUNCATE) -> LazyView:
        """All rows, of which those that are dropped have no length."""
        if not self.rows:
            raise StoreRefusedError(f"Pretokenized dataset at '{self.path}' produced 0 usable examples. (no rows)")
        return self.selection(max_length, long_rows)

    def selection(self, max_length: int, long_rows: LongRows = LongRows.TRUNCATE) -> LazyView:
        """`view`, even if it has no rows."""
        if long_rows is LongRows.SPLIT:
            raise InvalidSpecError(
                f"long_rows = split with the store '{self.path}', which is admitted lazily: how many pieces its rows "
                "make is known only when all of them were read. Admit it eagerly (`dataserver store index` does that "
                "ahead of time), or let long_rows be truncate, drop or refuse.",
                store=str(self.path),
            )
        return self._views(max_length, long_rows)

    def read_amplification(self) -> None:
        """Not known."""

    def check_vocab(self, vocab_size: int) -> None:
        """Not known."""
        raise self._unknown(f"whether it holds tokens at or above {vocab_size}")

    def _unknown(self, what: str) -> InvalidRequestError:
        return InvalidRequestError(
            f"'{self.path}' was admitted lazily: {what} is not known yet. Admit it eagerly; `dataserver store index` "
            "does the pass ahead of time."
        )
