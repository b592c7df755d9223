"""The scan of a shard on a local disk, or of its copy there.

The digest runs ahead of the block, so that its bytes come from disk once.
"""

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import xxhash

from dataserver.stores.files import ByteSource, FileStamp
from dataserver.stores.formats import decoding_bytes, open_shard_file
from dataserver.stores.layout import MappedFile, Placement, place
from dataserver.stores.manifest import Shard, ShardLayout
from dataserver.stores.scan_block import Scan, Where, scan_block
from dataserver.stores.schema import INPUT_IDS, LOSS_MASK, selected_columns
from dataserver.stores.tables import BLOCKS

_HASH_CHUNK = 1 << 20

_Positions = tuple[int, int, int, int]


def scan_near_shard(scan: Scan, number: int, source: ByteSource, stamp: FileStamp) -> Shard:
    """Admit shard `number` of the store: a local file, or one that is read through a local copy."""
    begin_row = scan.figures.rows
    digest = _Digest(source, scan)
    copy = None if scan.discovery.copies is None else scan.discovery.copies.open(source.name, scan.hashed)
    file = open_shard_file(scan.discovery.format, copy or source)
    size = stamp.size if copy is None else copy.size
    mapped = None if file.base_address is None else MappedFile(address=file.base_address, size=size)
    places = _Places(mapped)
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
            scan.discovery.format, largest_batch_bytes=found.largest_bytes, encoded_bytes=end - begin
        )
        record = (number, found.rows, begin, end, *places.of_block, found.tokens, decoding)
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

    def __init__(self, mapped: MappedFile | None) -> None:
        self._mapped = mapped
        self._layouts: set[ShardLayout | None] = set()
        self.of_block: _Positions = (0, 0, 0, 0)

    def watch(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches of one block; `of_block` is its place afterwards."""
        self.of_block = (0, 0, 0, 0)
        for batch in batches:
            yield batch
            if batch.num_rows:
                layout, self.of_block = _positions(batch, self._mapped)
                self._layouts.add(layout)

    def layout(self) -> ShardLayout | None:
        """How every block lies; None if they must be decoded."""
        return next(iter(self._layouts)) if len(self._layouts) == 1 else None


def _positions(batch: pa.RecordBatch, mapped: MappedFile | None) -> tuple[ShardLayout | None, _Positions]:
    """How the columns of a record batch lie in the map, and where; (None, zeros) if they must be decoded."""
    nowhere = (None, (0, 0, 0, 0))
    if mapped is None:
        return nowhere
    found: dict[str, Placement] = {}
    for name in (INPUT_IDS, LOSS_MASK):
        if name in batch.schema.names:
            placement = place(batch.column(name), mapped)
            if placement is None:
                return nowhere
            found[name] = placement
    ids, mask = found[INPUT_IDS], found.get(LOSS_MASK)
    layout = ShardLayout(input_ids=ids.layout, loss_mask=None if mask is None else mask.layout)
    mask_positions = (0, 0) if mask is None else (mask.offsets_at, mask.values_at)
    return layout, (ids.offsets_at, ids.values_at, *mask_positions)


class _Digest:
    """XXH3-128 of a file, taken as far as asked."""

    def __init__(self, source: ByteSource, scan: Scan) -> None:
        self._source = source
        self._scan = scan
        self._done = 0
        self._hash = xxhash.xxh3_128()

    def advance(self, end: int) -> None:
        """Hash on up to byte `end`."""
        while self._done < end:
            chunk = self._source.read(self._done, min(end, self._done + _HASH_CHUNK))[:]
            if not chunk:
                return
            self._hash.update(chunk)
            self._done += len(chunk)
            self._scan.hashed(len(chunk))

    def hexdigest(self) -> str:
        """The digest of what was hashed."""
        return self._hash.hexdigest()
