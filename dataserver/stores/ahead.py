"""Blocks decoded before they are read, so that whoever reads waits for no storage.

rows of a step ──> BlockRef … ──wish──> kept in the cache while there is room for them
└─ load_ahead ──> decoded now, if that pushes out nothing that is wished for
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from dataserver.stores.block_cache import BlockCache, BlockKey
from dataserver.stores.decoded_block import DecodedBlock


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockRef:
    """A block that a read of some rows needs. `store`: the fingerprint of its store."""

    store: str
    cache: BlockCache
    key: BlockKey
    needed_bytes: int
    decode: Callable[[], DecodedBlock]

    @property
    def is_held(self) -> bool:
        """Whether it is decoded at this moment."""
        return self.cache.holds(self.key)

    def load(self) -> None:
        """Decode it unless it is held, waiting for room. Raises what reading it raises."""
        with self.cache.block(self.key, self.needed_bytes, self.decode):
            pass

    def load_ahead(self) -> bool:
        """Decode it if there is room that nobody wishes for otherwise; whether it is held afterwards."""
        return self.cache.load_ahead(self.key, self.needed_bytes, self.decode)


class Wish:
    """Blocks that will be read soon: while it is open, only reads that must push them out. `close` is idempotent."""

    def __init__(self, refs: Iterable[BlockRef]) -> None:
        self.refs = tuple(refs)
        self._wanted: dict[BlockCache, list[BlockKey]] = {}
        for ref in self.refs:
            self._wanted.setdefault(ref.cache, []).append(ref.key)
        for cache, keys in self._wanted.items():
            cache.want(keys)

    def close(self) -> None:
        """Wish no more."""
        while self._wanted:
            cache, keys = self._wanted.popitem()
            cache.unwant(keys)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self.close()
