"""Decoded blocks, all stores' together within one bound of bytes.

    wanted ── held ──────────────────────────────────> pinned while it is read
           ├─ being decoded by another thread ──> wait ─┘
           └─ no ──> queue ──> room reserved ──> decode ─┘
                                 └ the least recently used that nobody reads are let go

A block counts from before it is decoded, with what its decoding needs, until nobody reads it and
it is let go. A thread reads or decodes one block at a time, so whoever waits for room gets it.
"""

import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import NamedTuple

from dataserver.errors import InternalError
from dataserver.stores.decoded_block import DecodedBlock

# Big enough for the row groups that the ranks of a step touch (64 MiB each in usual files), small
# beside the memory of a host that serves.
DEFAULT_CACHE_BYTES = 1 << 30


_MAY_DECODE: ContextVar[bool] = ContextVar("may_decode", default=True)


class NotDecodedError(Exception):
    """A block is not held, and the reader may not wait for it. Never leaves the server."""


@contextmanager
def without_decoding() -> Iterator[None]:
    """Within it, reads of this thread raise `NotDecodedError` where they would have to decode a block first."""
    token = _MAY_DECODE.set(False)
    try:
        yield
    finally:
        _MAY_DECODE.reset(token)


class BlockKey(NamedTuple):
    """`owner`: the store that the block belongs to, as an object that is only itself."""

    owner: object
    shard: int
    block: int


class BlockCache:
    """Decoded blocks, at most `limit_bytes` of them with what decoding needs. Safe to use from several threads."""

    def __init__(self, limit_bytes: int = DEFAULT_CACHE_BYTES) -> None:
        self.limit_bytes = limit_bytes
        self._held: OrderedDict[BlockKey, _Held] = OrderedDict()
        self._decoding: set[BlockKey] = set()
        self._wanted: Counter[BlockKey] = Counter()
        self._queue: deque[object] = deque()
        self._counted = 0
        self._changed = threading.Condition()

    @property
    def counted_bytes(self) -> int:
        """Bytes held and reserved."""
        return self._counted

    def holds(self, key: BlockKey) -> bool:
        """Whether the block is decoded."""
        with self._changed:
            return key in self._held

    def want(self, keys: Iterable[BlockKey]) -> None:
        """Keep blocks, held or not yet, from being pushed out by those that are loaded ahead."""
        with self._changed:
            self._wanted.update(keys)

    def unwant(self, keys: Iterable[BlockKey]) -> None:
        """Take a `want` back."""
        with self._changed:
            self._wanted.subtract(keys)
            self._wanted = +self._wanted

    def load_ahead(self, key: BlockKey, needed_bytes: int, decode: Callable[[], DecodedBlock]) -> bool:
        """Decode a block into room that is there, or that only unwanted blocks take; False where there is none."""
        with self._changed:
            if key in self._held or key in self._decoding:
                return True
            if self._queue or not self._make_room(needed_bytes, ahead=True):
                return False
            self._counted += needed_bytes
            self._decoding.add(key)
        held = self._decode_into(key, needed_bytes, decode)
        self._let_go((held,))
        return True

    @contextmanager
    def block(self, key: BlockKey, needed_bytes: int, decode: Callable[[], DecodedBlock]) -> Iterator[DecodedBlock]:
        """The block, decoded now if it is not held. Do not ask for another one inside.

        `needed_bytes`: what decoding takes, at most `limit_bytes` and at least the block's size.
        """
        held = self._pin(key) or self._decode(key, needed_bytes, decode)
        try:
            yield held.block
        finally:
            self._let_go((held,))

    @contextmanager
    def all_held(self, keys: Sequence[BlockKey]) -> Iterator[list[DecodedBlock] | None]:
        """Blocks that are all held now; None if one is not. Waits for nothing, so it is asked for many at once."""
        with self._changed:
            found = [self._held.get(key) for key in keys]
            pinned = [held for held in found if held is not None]
            if len(pinned) < len(keys):
                pinned = []
            for held in pinned:
                held.readers += 1
            for key in keys if pinned else ():
                self._held.move_to_end(key)
        try:
            yield [held.block for held in pinned] if len(pinned) == len(keys) else None
        finally:
            self._let_go(pinned)

    @contextmanager
    def room(self, needed_bytes: int) -> Iterator[None]:
        """Count `needed_bytes`, or as many as there may be, for what is done inside; waits until there is room."""
        counted = min(needed_bytes, self.limit_bytes)
        self._reserve(counted)
        try:
            yield
        finally:
            with self._changed:
                self._counted -= counted
                self._changed.notify_all()

    def forget(self, owner: object) -> None:
        """Let go of an owner's blocks; those that are being read count until they are not."""
        with self._changed:
            for key in [key for key in self._held if key.owner is owner]:
                held = self._held.pop(key)
                held.forgotten = True
                if held.readers == 0:
                    self._counted -= held.block.nbytes
            self._changed.notify_all()

    def _pin(self, key: BlockKey) -> "_Held | None":
        """The block if it is held; otherwise None, and the caller is the one that decodes it."""
        with self._changed:
            if not _MAY_DECODE.get() and key not in self._held:
                raise NotDecodedError
            self._changed.wait_for(lambda: key not in self._decoding)
            held = self._held.get(key)
            if held is None:
                self._decoding.add(key)
                return None
            self._held.move_to_end(key)
            held.readers += 1
            return held

    def _decode(self, key: BlockKey, needed_bytes: int, decode: Callable[[], DecodedBlock]) -> "_Held":
        try:
            self._reserve(needed_bytes)
        except BaseException:
            with self._changed:
                self._decoding.discard(key)
                self._changed.notify_all()
            raise
        return self._decode_into(key, needed_bytes, decode)

    def _decode_into(self, key: BlockKey, reserved: int, decode: Callable[[], DecodedBlock]) -> "_Held":
        """Decode into `reserved` bytes that are counted already."""
        try:
            held = _Held(decode())
            with self._changed:
                self._counted += held.block.nbytes - reserved
                reserved = 0
                self._held[key] = held
            return held
        finally:
            with self._changed:
                self._counted -= reserved
                self._decoding.discard(key)
                self._changed.notify_all()

    def _let_go(self, pinned: "Iterable[_Held]") -> None:
        with self._changed:
            for held in pinned:
                held.readers -= 1
                if held.forgotten and held.readers == 0:
                    self._counted -= held.block.nbytes
            self._changed.notify_all()

    def _reserve(self, needed_bytes: int) -> None:
        """Wait for room, in the order of asking, so that small blocks do not starve a big one."""
        if needed_bytes > self.limit_bytes:
            raise InternalError(f"a block of {needed_bytes} bytes in a cache of {self.limit_bytes}")
        me = object()
        with self._changed:
            self._queue.append(me)
            try:
                self._changed.wait_for(lambda: self._queue[0] is me and self._make_room(needed_bytes))
                self._counted += needed_bytes
            finally:
                self._queue.remove(me)
                self._changed.notify_all()

    def _make_room(self, needed_bytes: int, *, ahead: bool = False) -> bool:
        """Let go of blocks that nobody reads, the least recently used first, until there is room or none is left.

        Those that nobody wants go first, and `ahead` of their use no others do.
        """
        idle = [key for key, held in self._held.items() if held.readers == 0]
        wanted = [] if ahead else [key for key in idle if key in self._wanted]
        for key in [key for key in idle if key not in self._wanted] + wanted:
            if self._counted + needed_bytes <= self.limit_bytes:
                break
            self._counted -= self._held.pop(key).block.nbytes
        return self._counted + needed_bytes <= self.limit_bytes


@cache
def shared_cache(limit_bytes: int = DEFAULT_CACHE_BYTES) -> BlockCache:
    """The cache of all stores of this process that were opened without another one, or unpickled with this bound."""
    return BlockCache(limit_bytes)


class _Held:
    """A block in the cache. `forgotten`: it counts only until its last reader is done."""

    __slots__ = ("block", "forgotten", "readers")

    def __init__(self, block: DecodedBlock) -> None:
        self.block = block
        self.readers = 1
        self.forgotten = False
