"""The rows of all shards of a store by number, and the watch over its files.

rows ──> shard (search) ──> its neighbours ──> reader (mapped or decoded) ──> copied to where they are wanted
"""

import threading
import time
from collections import OrderedDict
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dataserver.errors import InternalError, StoreDamagedError
from dataserver.storage.disk_cache import DiskCache
from dataserver.stores.ahead import BlockRef
from dataserver.stores.block_cache import BlockCache
from dataserver.stores.decoded import BlockFile, DecodedReader, prepare_decoded
from dataserver.stores.destination import Destination, ShardReader, grouped, part_of
from dataserver.stores.files import ByteSource, ShardFiles
from dataserver.stores.joint_map import map_jointly
from dataserver.stores.local_files import local_digest
from dataserver.stores.manifest import Manifest, Shard
from dataserver.stores.mapped import MappedReader
from dataserver.stores.neighbours import joined, neighbours_of
from dataserver.stores.tables import Tables

# A reader may hold a file descriptor, and 1024 of them are a usual limit for a process.
_MAX_READERS = 256

# Shards that are compared with their manifest at a time, before a step is sealed: a millisecond's worth.
_MOST_CHECKED = 256

# How often a shard that is being read is compared with its manifest.
_CHECK_INTERVAL_S = 1.0


class ShardRows:
    """Reads rows of a store, opening shards as they are needed. Safe to use from several threads."""

    def __init__(
        self,
        *,
        files: ShardFiles,
        manifest: Manifest,
        tables: Tables,
        cache: BlockCache,
        disk_cache: DiskCache | None = None,
    ) -> None:
        self._files = files
        self._manifest = manifest
        self._tables = tables
        shard_rows = [shard.rows for shard in manifest.shards]
        self._shard_begins = np.concatenate(([0], np.cumsum(shard_rows, dtype=np.int64)))
        self._neighbours = neighbours_of(manifest.shards)
        counts = [neighbours.end - neighbours.begin for neighbours in self._neighbours]
        self._neighbours_of = np.repeat(np.arange(len(counts)), counts)
        self._readers: OrderedDict[int, ShardReader] = OrderedDict()
        self._next_check = 0
        self._checked_at = np.zeros(len(manifest.shards))
        self._changed_ns = [shard.stamp.changed_ns for shard in manifest.shards]
        # Asked for each message that is sent, of stores that may have very many shards.
        self._decodes = any(shard.layout is None and shard.rows for shard in manifest.shards)
        self._cache = cache
        self._disk_cache = disk_cache
        self._owner = object()
        self._lock = threading.Lock()

    @property
    def cache_bytes(self) -> int:
        """The bound of decoded blocks, those of other stores included."""
        return self._cache.limit_bytes

    def read(
        self,
        rows: NDArray[np.int64],
        lengths: NDArray[np.int64],
        into: Destination,
        numbers: NDArray[np.int64] | None = None,
        *,
        offsets: NDArray[np.int64] | None = None,
    ) -> None:
        """Write `lengths[i]` tokens of `rows[i]`, and what else is wanted of them, to row `numbers[i]` of `into`.

        They begin at the row's token `offsets[i]` (None: at its first); `numbers` None: they go to row i.

        Raises `StoreDamagedError` if a shard changed since it was admitted.
        """
        shards = np.searchsorted(self._shard_begins, rows, side="right") - 1
        self._check_now_and_then(shards)
        if len(self._neighbours) == 1:
            self._reader(0).read(rows, lengths, into, numbers, offsets=offsets)
            return
        for neighbours, at in grouped(self._neighbours_of[shards]):
            self._reader(neighbours).read(
                rows[at] - self._shard_begins[self._neighbours[neighbours].begin],
                lengths[at],
                into,
                part_of(numbers, at),
                offsets=None if offsets is None else offsets[at],
            )

    def prepare(self, token_bytes: int) -> None:
        """Have what copies rows compiled for tokens of `token_bytes`, so that no first read waits for that."""
        none = np.zeros(0, dtype=np.int64)
        into = Destination.end_to_end(none, token_bytes=token_bytes, mask=True, weights=self._manifest.has_weights)
        mapped = {span.layout: number for number, span in enumerate(self._neighbours) if span.layout is not None}
        for number in mapped.values():
            self._reader(number).read(none, none, into, None, offsets=None)
        if self.decodes:
            prepare_decoded(self._manifest.token_bytes, into)

    def decoded(self, shard: int) -> DecodedReader:
        """The reader of a shard that has to be decoded, by its number."""
        reader = self._reader(int(self._neighbours_of[shard]))
        if not isinstance(reader, DecodedReader):
            raise InternalError(f"shard {shard} of '{self._files.name}' is mapped")
        return reader

    def block_begins(self) -> NDArray[np.int64]:
        """The first row of each block of the store, and the number of rows, int64[b + 1]."""
        parts = [
            begin + blocks.row_begins[:-1]
            for begin, blocks in zip(self._shard_begins.tolist(), self._tables.blocks, strict=False)
        ]
        return np.concatenate([*parts, self._shard_begins[-1:]])

    def blocks(self, rows: NDArray[np.int64]) -> list[BlockRef]:
        """Blocks that a read of `rows` decodes, about in the order of first use; none of what is mapped."""
        shards = np.searchsorted(self._shard_begins, rows, side="right") - 1
        found: list[BlockRef] = []
        for shard, at in sorted(grouped(shards), key=lambda group: int(group[1][0])):
            reader = self._reader(int(self._neighbours_of[shard]))
            if isinstance(reader, DecodedReader):
                found += reader.blocks(rows[at] - self._shard_begins[shard])
        return found

    @property
    def decodes(self) -> bool:
        """Whether any shard is decoded, and not mapped."""
        return self._decodes

    def check_unchanged(self) -> None:
        """Compare shards' sizes and versions with the manifest; raises `StoreDamagedError`.

        At most `_MOST_CHECKED` of them, those whose turn it is. What is read is looked at in any case.
        """
        if not self._files.watched:
            return
        count = len(self._manifest.shards)
        checked = min(count, _MOST_CHECKED)
        with self._lock:
            first, self._next_check = self._next_check, (self._next_check + checked) % count
        for number in range(first, first + checked):
            self._check(number % count)

    def close(self) -> None:
        """Let go of maps and decoded blocks. Idempotent; a later read opens them again."""
        with self._lock:
            self._readers.clear()
        self._cache.forget(self._owner)

    def _reader(self, number: int) -> ShardReader:
        with self._lock:
            reader = self._readers.get(number)
            if reader is None:
                reader = self._readers[number] = self._open_reader(number)
                if len(self._readers) > _MAX_READERS:
                    self._readers.popitem(last=False)
            self._readers.move_to_end(number)
            return reader

    def _open_reader(self, number: int) -> ShardReader:
        neighbours = self._neighbours[number]
        shard, end = neighbours.begin, neighbours.end
        first, last = self._shard_begins[[shard, end]].tolist()
        images = self._tables.images.within(first, last)
        if neighbours.layout is not None:
            data, begins = map_jointly([self._mappable(each) for each in range(shard, end)])
            blocks_of_all = joined(self._tables.blocks[shard:end], begins, neighbours.layout)
            patch_values = 0 if self._manifest.images is None else self._manifest.images.patch_values
            name = self._files.name
            return MappedReader(data, neighbours.layout, blocks_of_all, images, patch_values=patch_values, name=name)
        source, blocks = self._files.open(self._manifest.shards[shard].path), self._tables.blocks[shard]
        return DecodedReader(
            file=self._shard_file(shard, source),
            number=shard,
            manifest=self._manifest,
            blocks=blocks,
            lengths=self._tables.lengths[first:last],
            images=images,
            cache=self._cache,
            owner=self._owner,
        )

    def _shard_file(self, number: int, source: ByteSource) -> BlockFile:
        # Imported here: stores that are mapped are served without pyarrow.
        from dataserver.stores.block_files import FarBlocks, NearBlocks  # noqa: PLC0415

        manifest, blocks = self._manifest, self._tables.blocks[number]
        if self._tables.fetch is None:
            return NearBlocks(source, manifest, number, blocks)
        return FarBlocks(self._tables.fetch.source(number, manifest, source, self._disk_cache), manifest, number)

    def _mappable(self, number: int) -> tuple[Path, int]:
        source = self._files.open(self._manifest.shards[number].path)
        if source.local_path is None:
            raise InternalError(f"'{source.name}' of '{self._files.name}' cannot be mapped: it is not on a local disk")
        return source.local_path, source.size

    def _check_now_and_then(self, shards: NDArray[np.int64]) -> None:
        if not self._files.watched:
            return
        now = time.monotonic()
        due = self._checked_at[shards] <= now - _CHECK_INTERVAL_S
        for number in np.unique(shards[due]).tolist() if due.any() else ():
            self._check(number)
            self._checked_at[number] = now

    def _check(self, number: int) -> None:
        shard = self._manifest.shards[number]
        try:
            stamp = self._files.stat(shard.path)
        except OSError as error:
            raise StoreDamagedError(
                f"Shard '{shard.path}' in '{self._files.name}' is gone ({error}).", shard=shard.path
            ) from error
        if stamp != shard.stamp:
            raise StoreDamagedError(
                f"Shard '{shard.path}' in '{self._files.name}' changed after it was admitted: it was {shard.stamp} "
                f"and is {stamp}. Stores are immutable: put new data under a new name.",
                shard=shard.path,
            )
        if stamp.changed_ns != self._changed_ns[number]:
            self._check_contents(shard)
            self._changed_ns[number] = stamp.changed_ns

    def _check_contents(self, shard: Shard) -> None:
        """Of a file of which only the last change moved; copies and ranges are compared when they are read."""
        is_read = not shard.copy_digest and self._tables.fetch is None
        if is_read and local_digest(self._files, shard.path) != shard.digest:
            raise StoreDamagedError(
                f"Shard '{shard.path}' in '{self._files.name}' changed after it was admitted: its contents are others, "
                "though size and modification time are the same. Stores are immutable: put new data under a new name.",
                shard=shard.path,
            )
