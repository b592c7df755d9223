"""The record batches of a block, from a file beside us or far away; opened when the first block is asked for."""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from dataserver.stores.far_block import Fetched
from dataserver.stores.far_files import FarFile, open_far_file
from dataserver.stores.files import ByteSource
from dataserver.stores.formats import ShardFile, open_shard_file
from dataserver.stores.manifest import Manifest
from dataserver.stores.spans import CheckedSource
from dataserver.stores.tables import Blocks

# What Arrow may hold of a block between two passes over it.
KEPT_BYTES = 50 << 20


class NearBlocks:
    """Blocks of a local file."""

    def __init__(self, source: ByteSource, manifest: Manifest, number: int, blocks: Blocks) -> None:
        self._source = source
        self._manifest = manifest
        self._blocks = blocks
        self._names = manifest.served_columns(number)
        self._file: ShardFile | None = None

    def batches(self, block: int) -> Iterator[pa.RecordBatch]:
        """See `decoded.BlockFile`."""
        file = self._file = self._file or open_shard_file(self._manifest.format, self._source)
        begin, end = int(self._blocks.field("begin")[block]), int(self._blocks.field("end")[block])
        return file.read_block(block, begin, end, self._names)


class FarBlocks:
    """Blocks of a shard, each from the ranges that its index names."""

    def __init__(self, source: CheckedSource, manifest: Manifest, number: int) -> None:
        self._source = source
        self._manifest = manifest
        self._names = manifest.served_columns(number)
        self._head = manifest.shards[number].head
        self._file: FarFile | None = None

    def batches(self, block: int) -> Iterator[pa.RecordBatch]:
        """See `decoded.BlockFile`."""
        return self.decode(block, [(span, self._source.read(*span)) for span in self._source.spans(block)], self._names)

    def read_first(self, block: int) -> list[Fetched]:
        """The bytes of a block that nobody has checked yet."""
        return self._source.read_first(block)

    def decode(self, block: int, fetched: Sequence[Fetched], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The record batches of a block out of its bytes."""
        file = self._file = self._file or open_far_file(self._manifest.format, self._source, self._head)
        return file.decode(block, fetched, names)


class HeldBlock:
    """One block of which the bytes are at hand: they are checked, then decoded. Of small ones Arrow's part is kept."""

    def __init__(self, file: FarBlocks, fetched: Sequence[Fetched], names: Sequence[str]) -> None:
        self._file = file
        self._fetched = fetched
        self._names = names
        self._kept: list[pa.RecordBatch] | None = None

    def checked(self, block: int, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Its record batches of the columns `names`, which contain those that are served."""
        kept: list[pa.RecordBatch] = []
        total = 0
        for batch in self._file.decode(block, self._fetched, names):
            total += batch.nbytes
            if total <= KEPT_BYTES:
                kept.append(batch)
            else:
                kept.clear()
            yield batch
        self._kept = kept if total <= KEPT_BYTES else None

    def batches(self, block: int) -> Iterator[pa.RecordBatch]:
        """See `decoded.BlockFile`."""
        if self._kept is not None:
            return iter(self._kept)
        return self._file.decode(block, self._fetched, self._names)
