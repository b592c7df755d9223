"""A file that is far away, read once from its beginning to its end.

    storage ══ chunks, a few in flight ══> hashed ──> kept while they are wanted ──> read

Whoever scans says which bytes it will read next (`reach`); reading goes on up to there, hashing
all that it passes and keeping what is wanted. A read close ahead moves it on as well. Any other read
goes to the file itself: a footer at its end, say.
"""

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self

import xxhash

from dataserver.stores.files import Bytes, ByteSource, Span

# One GET, and how many of them are in flight: enough to fill a fast network, 40 MiB at most.
CHUNK_BYTES = 8 << 20
CHUNKS_AHEAD = 4


class ReadThrough:
    """A `files.ByteSource` over `source` that reads ahead; for one thread. `hashed` is told of bytes as they pass."""

    local_path = None

    def __init__(self, source: ByteSource, hashed: Callable[[int], None]) -> None:
        self._source = source
        self.name = source.name
        self.size = source.size
        self._hashed = hashed
        self._pool = ThreadPoolExecutor(CHUNKS_AHEAD, thread_name_prefix="dataserver-admission")
        self._coming: deque[Future[Bytes]] = deque()
        self._asked = 0
        self._at = 0
        self._held: list[tuple[int, bytes]] = []
        self._wanted: tuple[Span, ...] = ()
        self._hash = xxhash.xxh3_128()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self._pool.shutdown(cancel_futures=True)

    def reach(self, spans: Sequence[Span]) -> None:
        """Move on to the end of `spans`, and keep their bytes; let go of what was kept before."""
        self._wanted = tuple(spans)
        self._prune()
        self._advance(max((end for _, end in spans), default=0))

    def read(self, begin: int, end: int) -> bytes:
        """See `files.ByteSource`."""
        found = self._find(begin, end)
        if found is None and self._at < end <= self._at + CHUNK_BYTES:
            before, self._wanted = self._wanted, (*self._wanted, (begin, end))
            self._advance(end)
            self._wanted = before
            found = self._find(begin, end)
        return self._source.read(begin, end)[:] if found is None else found

    def hexdigest(self) -> str:
        """The XXH3-128 of the whole file."""
        self._advance(self.size)
        return self._hash.hexdigest()

    def _advance(self, end: int) -> None:
        while self._at < min(end, self.size):
            while len(self._coming) < CHUNKS_AHEAD and self._asked < self.size:
                begin, self._asked = self._asked, min(self._asked + CHUNK_BYTES, self.size)
                self._coming.append(self._pool.submit(self._source.read, begin, self._asked))
            chunk = self._coming.popleft().result()[:]
            self._hash.update(chunk)
            self._held.append((self._at, chunk))
            self._at += len(chunk)
            self._prune()
            self._hashed(len(chunk))

    def _prune(self) -> None:
        """Let go of chunks without a wanted byte; the last stays for what begins in it."""
        self._held = [
            (begin, chunk)
            for begin, chunk in self._held
            if begin + len(chunk) == self._at
            or any(first < begin + len(chunk) and begin < end for first, end in self._wanted)
        ]

    def _find(self, begin: int, end: int) -> bytes | None:
        """The bytes if all of them are held."""
        parts = []
        at = begin
        for first, chunk in self._held:
            if first <= at < first + len(chunk) and at < end:
                part = chunk[at - first : end - first]
                parts.append(part)
                at += len(part)
        return b"".join(parts) if at == end else None
