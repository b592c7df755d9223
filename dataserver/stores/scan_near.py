"""The scan of a shard on a local disk, or of its copy there.

The digest runs ahead of the block, so that its bytes come from disk once.
"""

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import xxhash

from dataserver.stores.files import ByteSource, FileStamp
from dataserver.stores.formats import decoding_bytes, open_shard_file
from dataserver.stores.image_index import ImageIndex
from dataserver.stores.layout import NOWHERE, MappedFile, place_batch
from dataserver.stores.manifest import Shard, ShardLayout
from dataserver.stores.scan_block import Scan, Where, scan_block
from dataserver.stores.schema import selected_columns, served_columns
from dataserver.stores.tables import BLOCKS

_HASH_CHUNK = 1 << 20


def scan_near_shard(scan: Scan, number: int, source: ByteSource, stamp: FileStamp) -> Shard:
    """Admit shard `number` of the store: a local file, or one that is read through a local copy."""
    begin_row = scan.figures.rows
    copies = scan.discovery.copies
    copy = None if copies is None else copies.open(source.name, scan.hashed)
    digest = _Digest(source, scan, known=None if copies is None else copies.digest_of(source.name))
    file = open_shard_file(scan.discovery.format, copy or source)
    size = stamp.size if copy is None else copy.size
    mapped = None if file.base_address is None else MappedFile(address=file.base_address, size=size)
    places = _Places(mapped, scan.images)
    names = selected_columns([column.name for column in file.columns], scan.loss_mask)
    for block, (begin, end, batches) in enumerate(file.scan(names)):
        # Of a copy the ends are others; the file itself is gone through either way.
        digest.advance(min(end, stamp.size))
        where = Where(
            shard=source.name,
            unit="row group" if mapped is None else "record batch",
            block=block,
            row=scan.figures.rows - begin_row,
        )
        found = scan_block(scan, where, places.watch(batches))
        decoding = decoding_bytes(
            scan.discovery.format,
            columns=len(served_columns(names, scan.loss_mask)),
            largest_batch_bytes=found.largest_bytes,
            encoded_bytes=end - begin,
        )
        record = (number, found.rows, begin, end, *places.of_block, found.tokens, found.extra_bytes, decoding)
        scan.building.append(BLOCKS, np.array(record, dtype="<i8"))
    digest.advance(stamp.size)
    return Shard(
        path=source.name,
        stamp=stamp,
        rows=scan.figures.rows - begin_row,
        digest=digest.hexdigest(),
        columns=file.columns,
        layout=places.layout(),
        copy_digest="" if copy is None else copy.digest,
    )


class _Places:
    """Where the blocks of a shard lie in its map, noted as their batches pass."""

    def __init__(self, mapped: MappedFile | None, images: ImageIndex | None) -> None:
        self._mapped = mapped
        self._images = images
        self._layouts: set[ShardLayout | None] = set()
        self.of_block = NOWHERE.positions

    def watch(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches of one block; `of_block` is its place afterwards."""
        self.of_block = NOWHERE.positions
        for batch in batches:
            yield batch
            if batch.num_rows:
                place = place_batch(batch, self._mapped)
                self.of_block = place.positions
                self._layouts.add(place.layout)
                if self._images is not None:
                    self._images.place(place.grids_at, place.pixels_at)

    def layout(self) -> ShardLayout | None:
        """How every block lies; None if they must be decoded."""
        return next(iter(self._layouts)) if len(self._layouts) == 1 else None


class _Digest:
    """XXH3-128 of a file, taken as far as asked; only counted where it is `known`."""

    def __init__(self, source: ByteSource, scan: Scan, known: str | None) -> None:
        self._known = known
        self._source = source
        self._scan = scan
        self._done = 0
        self._hash = xxhash.xxh3_128()

    def advance(self, end: int) -> None:
        """Hash on up to byte `end`."""
        if self._known is not None and end > self._done:
            self._scan.hashed(end - self._done)
            self._done = end
        while self._done < end:
            chunk = self._source.read(self._done, min(end, self._done + _HASH_CHUNK))[:]
            if not chunk:
                return
            self._hash.update(chunk)
            self._done += len(chunk)
            self._scan.hashed(len(chunk))

    def hexdigest(self) -> str:
        """The digest of what was hashed."""
        return self._known or self._hash.hexdigest()
