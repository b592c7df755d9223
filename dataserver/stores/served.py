"""What runs see of a store that is cut to a longest sample, however it was admitted: see `view` and `lazy_view`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dataserver.errors import InvalidRequestError
from dataserver.run_spec import LongRows
from dataserver.stores.ahead import BlockRef
from dataserver.stores.destination import Destination
from dataserver.stores.selection import Figures


class ViewedStore(Protocol):
    """What a view needs of its store; see `store.Store`."""

    @property
    def path(self) -> Path | str:
        """Where it is."""

    @property
    def index_dir(self) -> Path:
        """Where views are kept."""

    @property
    def fingerprint(self) -> str:
        """Names the store in the index directory."""

    @property
    def token_bytes(self) -> int:
        """Bytes that a token needs."""

    @property
    def max_token(self) -> int:
        """The highest token id."""

    @property
    def max_token_row(self) -> int:
        """The first row that has it."""

    def selection(self, max_length: int, long_rows: LongRows) -> "ServedRows":
        """The view for this longest sample, again."""


class ServedRows(Protocol):
    """Rows by the numbers that an order knows them by, from 0 in store order.

    Of an eagerly admitted store these are the rows that are served. Of a lazily admitted one they are all rows: those
    of which nothing is served have the length 0. Its methods that say anything of a row raise
    `UnknownBlocksError` until the block of the row is known, and its figures are 0.
    """

    @property
    def rows(self) -> int:
        """How many there are."""

    @property
    def kept_tokens(self) -> int:
        """Tokens that are served; 0 where nobody knows."""

    @property
    def cut_tokens(self) -> int:
        """Tokens of served rows that are lost to truncation, or to last pieces of one token."""

    @property
    def dropped(self) -> Mapping[str, int]:
        """How many rows are not served, by reason; reasons without rows are left out."""

    @property
    def figures(self) -> Figures:
        """All of these."""

    def store_rows(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Row numbers in the store, int64[n]; raises `OutOfRangeError` for a row that there is not."""

    def block_rows(self) -> NDArray[np.int64]:
        """How many rows there are of each block (record batch, row group) of the store, int64[b], in store order."""

    def lengths(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Tokens served of each row, int64[n]."""

    def offsets(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The row's token at which each begins, int64[n]: above 0 in the later pieces of a row that is split."""

    def targets(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Targets among the served positions from 1 on, int64[n], each at least 1 where anything is served."""

    def weights(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """What these targets weigh, float64[n]; only where the store has weights."""

    def has_images(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which rows have images, bool[n]."""

    def highest_token(self, rows: NDArray[np.int64]) -> tuple[int, int]:
        """The highest token, and the first row that has it: of the store, or, lazily, of the blocks of `rows`."""

    def read(
        self,
        rows: NDArray[np.int64],
        lengths: NDArray[np.int64],
        into: Destination,
        numbers: NDArray[np.int64] | None = None,
    ) -> None:
        """Write what is served of each of `rows`, whose `lengths` are (int64[n] each), to row `numbers[i]` of `into`.

        `numbers` None: to row i. What is wanted and the store does not have is left as it is, but for a mask, which is
        then all ones. Images of a mapped store are views of it. Raises `InvalidRequestError` where tokens are
        narrower than the store's, and `StoreDamagedError` if a shard changed since it was admitted.
        """

    @property
    def decodes(self) -> bool:
        """Whether rows must be decoded before they are read, be it only some."""

    def blocks(self, rows: NDArray[np.int64]) -> list[BlockRef]:
        """Blocks that a read of `rows` (int64[n]) needs, to be loaded ahead of it; none of what is mapped."""


def check_width(store: ViewedStore, into: Destination) -> None:
    """Raise `InvalidRequestError` for a destination whose tokens may not hold the store's."""
    if into.tokens is not None and into.tokens.itemsize < store.token_bytes:
        raise InvalidRequestError(
            f"tokens of {into.tokens.itemsize} bytes cannot hold those of '{store.path}', "
            f"which need {store.token_bytes}"
        )
