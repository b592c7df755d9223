"""Decoded blocks, held up to a bound of bytes, the least recently used let go first.

A block that several threads ask for at once is decoded once.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dataserver.errors import StoreRefusedError

# What all decoded blocks of one store may hold. Big enough for the row groups that the ranks of a
# step touch (64 MiB each in usual files), small beside the memory of a host that serves.
CACHE_BYTES = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedBlock:
    """Rows of one block: `tokens` uint16|uint32[m], `mask` uint8[m] (None: every token is a target).

    Row r lies at `starts[r]` up to `starts[r + 1]` (int64[n + 1]).
    """

    tokens: NDArray[np.uint16] | NDArray[np.uint32]
    mask: NDArray[np.uint8] | None
    starts: NDArray[np.int64]

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.tokens.nbytes + self.starts.nbytes + (0 if self.mask is None else self.mask.nbytes)


def check_block_size(rows: int, tokens: int, *, shard: str, block: str) -> None:
    """Refuse a block that would not fit the cache by itself, with 4 bytes a token and 1 of mask."""
    size = tokens * 5 + rows * 8
    if size > CACHE_BYTES:
        raise StoreRefusedError(
            f"Shard '{shard}', {block}: its {tokens} tokens take {size} bytes decoded, "
            f"above the bound of {CACHE_BYTES}. "
            "Write the shard in smaller pieces (row_group_size for Parquet), or as uncompressed Arrow.",
            shard=shard,
        )


class BlockCache:
    """Decoded blocks by (shard, block)."""

    def __init__(self, limit_bytes: int = CACHE_BYTES) -> None:
        self._limit = limit_bytes
        self._held: OrderedDict[tuple[int, int], DecodedBlock] = OrderedDict()
        self._decoding: dict[tuple[int, int], Future[DecodedBlock]] = {}
        self._bytes = 0
        self._lock = threading.Lock()

    @property
    def held_bytes(self) -> int:
        """Bytes of all blocks held."""
        return self._bytes

    def get(self, key: tuple[int, int], decode: Callable[[], DecodedBlock]) -> DecodedBlock:
        """The block, decoded now if it is not held."""
        with self._lock:
            if key in self._held:
                self._held.move_to_end(key)
                return self._held[key]
            pending = self._decoding.get(key)
            if pending is None:
                mine = self._decoding[key] = Future[DecodedBlock]()
        if pending is not None:
            return pending.result()
        try:
            block = decode()
        except BaseException as error:
            with self._lock:
                del self._decoding[key]
            mine.set_exception(error)
            raise
        with self._lock:
            del self._decoding[key]
            self._hold(key, block)
        mine.set_result(block)
        return block

    def clear(self) -> None:
        """Let go of all blocks."""
        with self._lock:
            self._held.clear()
            self._bytes = 0

    def _hold(self, key: tuple[int, int], block: DecodedBlock) -> None:
        self._held[key] = block
        self._bytes += block.nbytes
        while self._bytes > self._limit and len(self._held) > 1:
            _, dropped = self._held.popitem(last=False)
            self._bytes -= dropped.nbytes
