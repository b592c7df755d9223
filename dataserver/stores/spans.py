"""What of a far-away store is fetched, and how each fetched byte is checked; of a lazily admitted one on a disk, too.

    spans.i8   one record for each range that serving reads: shard, block, begin, end, its XXH3-128 (two halves)
    heads.u1   what a reader needs of each shard before any block (footer, schema), end to end in shard order

Both are arrays of the store's index. `CheckedSource` reads through them: heads from the index, ranges from
the disk cache or the storage against their digest, and nothing else.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import xxhash
from numpy.typing import NDArray

from dataserver.errors import DataServerError, InternalError, StoreDamagedError, UnavailableError
from dataserver.storage.disk_cache import DiskCache
from dataserver.stores.far_block import Fetched
from dataserver.stores.files import Bytes, ByteSource, Span
from dataserver.stores.index import map_array
from dataserver.stores.manifest import Manifest
from dataserver.stores.remote_files import RemoteSource

SPANS = "spans.i8"
HEADS = "heads.u1"
SPAN_FIELDS = 6


def span_record(shard: int, block: int, span: Span, data: Bytes) -> NDArray[np.int64]:
    """The record of one range with the bytes `data`, int64[6]."""
    halves = np.frombuffer(xxhash.xxh3_128_digest(data), dtype="<i8")
    return np.array([shard, block, *span, *halves.tolist()], dtype="<i8")


class CheckedSource:
    """One shard through its index; see `files.ByteSource`. `records`: int64[s, 6], its ranges by block."""

    local_path = None

    def __init__(
        self,
        source: ByteSource,
        *,
        unit: str,
        head: tuple[Span, bytes],
        records: NDArray[np.int64],
        cache: DiskCache | None,
    ) -> None:
        self._source = source
        self.name = source.name
        self.size = source.size
        self._unit = unit
        self._head = head
        self._records = records
        self._cache = cache
        self._known = {(begin, end): at for at, (begin, end) in enumerate(records[:, 2:4].tolist())}

    def spans(self, block: int) -> tuple[Span, ...]:
        """What is read of a block."""
        first, last = np.searchsorted(self._records[:, 1], [block, block + 1]).tolist()
        return tuple((begin, end) for begin, end in self._records[first:last, 2:4].tolist())

    def read(self, begin: int, end: int) -> Bytes:
        """See `files.ByteSource`. Raises `StoreDamagedError` for bytes that are not those admitted."""
        (head_begin, head_end), head = self._head
        if head_begin <= begin and end <= head_end:
            return head[begin - head_begin : end - head_begin]
        at = self._known.get((begin, end))
        if at is None:
            raise InternalError(f"bytes {begin} to {end} of '{self.name}' are in no range of the index")
        return self._read(begin, end, int(self._records[at, 1]), self._records[at, 4:].tobytes().hex())

    def read_first(self, block: int) -> list[Fetched]:
        """The ranges of a block of which no digest is known yet."""
        return [(span, self._read(*span, block, None)) for span in self.spans(block)]

    def _read(self, begin: int, end: int, block: int, digest: str | None) -> Bytes:
        try:
            return self._fetch(begin, end, digest)
        except StoreDamagedError as error:
            raise self._with_place(StoreDamagedError, error, block) from error
        except UnavailableError as error:
            raise self._with_place(UnavailableError, error, block) from error
        except OSError as error:
            raise self._with_place(StoreDamagedError, StoreDamagedError(f"it is gone ({error})."), block) from error

    def _fetch(self, begin: int, end: int, digest: str | None) -> Bytes:
        """A range that would fill most of the disk cache goes past it, and so does what lies on a disk anyway."""
        source = self._source
        if (
            isinstance(source, RemoteSource)
            and self._cache is not None
            and (end - begin) * 2 <= self._cache.limit_bytes
        ):
            return self._cache.get(source.key(begin, end), digest, lambda: source.read(begin, end))
        data = source.read(begin, end)
        if len(data) != end - begin or digest not in (None, xxhash.xxh3_128_hexdigest(data)):
            raise StoreDamagedError(f"bytes {begin:,} to {end:,} have another digest than when they were admitted.")
        return data

    def _with_place(self, kind: type[DataServerError], error: DataServerError, block: int) -> DataServerError:
        text = f"Shard '{self.name}', {self._unit} {block}: {error.message}"
        return kind(text, shard=self.name, block=block)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchTables:
    """The arrays of a far-away store: `records` int64[s, 6], `heads` uint8[h], where each shard's head begins in it."""

    records: NDArray[np.int64]
    heads: NDArray[np.uint8]
    head_begins: NDArray[np.int64]

    @classmethod
    def open(cls, directory: Path, manifest: Manifest) -> Self | None:
        """Map the arrays in `directory`; None where one is missing or is not what was written."""
        digest = manifest.array_digests.get(HEADS, "")
        heads: NDArray[Any] | None = map_array(directory / HEADS, "u1", manifest.heads_bytes, digest)
        try:
            count = (directory / SPANS).stat().st_size // 8
        except FileNotFoundError:
            return None
        records: NDArray[Any] | None = map_array(directory / SPANS, "<i8", count, manifest.array_digests.get(SPANS, ""))
        if heads is None or records is None or count % SPAN_FIELDS:
            return None
        return cls.of(records.reshape(-1, SPAN_FIELDS), heads, manifest)

    @classmethod
    def of(cls, records: NDArray[np.int64], heads: NDArray[np.uint8], manifest: Manifest) -> Self:
        """The tables of a store out of its arrays."""
        head_begins = np.concatenate(([0], np.cumsum([shard.head_bytes for shard in manifest.shards], dtype=np.int64)))
        return cls(records=records, heads=heads, head_begins=head_begins)

    def source(self, number: int, manifest: Manifest, source: ByteSource, cache: DiskCache | None) -> CheckedSource:
        """Shard `number`, whose object `source` reads."""
        shard = manifest.shards[number]
        if shard.head is None:
            raise InternalError(f"shard '{shard.path}' is read from its file, not by ranges")
        head = self.heads[slice(*self.head_begins[number : number + 2].tolist())].tobytes()
        first, last = np.searchsorted(self.records[:, 0], [number, number + 1]).tolist()
        return CheckedSource(
            source,
            unit="row group" if manifest.format == "parquet" else "record batch",
            head=(shard.head, head),
            records=self.records[first:last],
            cache=cache,
        )
