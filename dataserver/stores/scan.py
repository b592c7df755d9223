"""The eager pass over a store: every byte is hashed, every row is checked and indexed, once.

    shard ──> block ──> piece: first fault? ──> index arrays (appended to files as they come)
       └────> digest, which runs ahead of the block so that its bytes come from disk once

Memory is bounded by a piece, whatever the store's size.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import xxhash

from dataserver.errors import StoreRefusedError
from dataserver.stores.admission import Fault, first_fault
from dataserver.stores.discovery import Discovery
from dataserver.stores.files import ByteSource, FileStamp, StoreFiles
from dataserver.stores.formats import decoding_bytes, open_shard_file, read_columns
from dataserver.stores.index import Building
from dataserver.stores.layout import MappedFile, Placement, place
from dataserver.stores.manifest import Manifest, Shard, ShardLayout, store_fingerprint
from dataserver.stores.piece_index import RunningFigures, index_piece
from dataserver.stores.pieces import Piece, pieces_of
from dataserver.stores.progress import ReportBytes
from dataserver.stores.schema import INPUT_IDS, LOSS_MASK, LossMask, ShardSchema, check_schemas, selected_columns
from dataserver.stores.tables import BLOCKS, FIRST_TARGETS, LENGTHS, TARGETS

_HASH_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class _Where:
    """The block under scan, for messages: numbers within the shard."""

    shard: str
    unit: str
    block: int
    row: int


@dataclass(slots=True, kw_only=True)
class _Scan:
    """What one pass carries along."""

    discovery: Discovery
    loss_mask: LossMask
    building: Building
    progress: ReportBytes
    bytes_total: int
    bytes_done: int = 0
    figures: RunningFigures = field(default_factory=RunningFigures)

    def hashed(self, count: int) -> None:
        """Report `count` more bytes as done."""
        self.bytes_done += count
        self.progress(self.bytes_done, self.bytes_total)


def scan_store(
    discovery: Discovery, *, store_path: Path, loss_mask: LossMask, building: Building, progress: ReportBytes
) -> Manifest:
    """Admit a store: its manifest, with the index arrays left in `building`.

    Raises `StoreRefusedError` for the first fault in row order.
    """
    sources = [discovery.files.open(path) for path in discovery.paths]
    _check_columns(discovery.format, sources, store_path, loss_mask)
    passes = 1 if discovery.copies is None else 2
    scan = _Scan(
        discovery=discovery,
        loss_mask=loss_mask,
        building=building,
        progress=progress,
        bytes_total=passes * sum(source.size for source in sources),
    )
    for name in (LENGTHS, FIRST_TARGETS, TARGETS, BLOCKS):
        building.append(name, np.zeros(0, dtype=np.int64))
    shards = tuple(_scan_shard(scan, number, path) for number, path in enumerate(discovery.paths))
    figures = scan.figures
    return Manifest(
        format=discovery.format,
        loss_mask=loss_mask,
        fingerprint=store_fingerprint(shards, loss_mask),
        shards=shards,
        rows=figures.rows,
        tokens=figures.tokens,
        longest_row=figures.longest_row,
        max_token=figures.max_token,
        max_token_row=figures.max_token_row,
        length_histogram=figures.histogram(),
        array_digests=building.digests(),
    )


def _check_columns(shard_format: str, sources: list[ByteSource], store_path: Path, loss_mask: LossMask) -> None:
    schemas = [
        ShardSchema(path=source.name, columns=columns)
        for source in sources
        if (columns := read_columns(shard_format, source, loss_mask)) is not None
    ]
    check_schemas(str(store_path), schemas, loss_mask)


def _scan_shard(scan: _Scan, number: int, relative: str) -> Shard:
    begin_row = scan.figures.rows
    with _unchanged(scan.discovery.files, relative) as stamp:
        source = scan.discovery.files.open(relative)
        digest = _Digest(source, scan)
        copy = None if scan.discovery.copies is None else scan.discovery.copies.open(relative, scan.hashed)
        file = open_shard_file(scan.discovery.format, copy or source)
        size = stamp.size if copy is None else copy.size
        mapped = None if file.base_address is None else MappedFile(address=file.base_address, size=size)
        names = selected_columns([column.name for column in file.columns], scan.loss_mask)
        layouts: set[ShardLayout | None] = set()
        for block, (begin, end, batches) in enumerate(file.scan(names)):
            digest.advance(end)
            where = _Where(
                shard=relative,
                unit="row group" if mapped is None else "record batch",
                block=block,
                row=scan.figures.rows - begin_row,
            )
            _scan_block(scan, where, record=(number, begin, end), batches=batches, mapped=mapped, layouts=layouts)
        digest.advance(stamp.size)
    return Shard(
        path=relative,
        stamp=stamp,
        rows=scan.figures.rows - begin_row,
        digest=digest.hexdigest(),
        columns=file.columns,
        layout=layouts.pop() if len(layouts) == 1 else None,
        copy_digest="" if copy is None else copy.digest,
    )


def _scan_block(
    scan: _Scan,
    where: _Where,
    *,
    record: tuple[int, int, int],
    batches: Iterator[pa.RecordBatch],
    mapped: MappedFile | None,
    layouts: set[ShardLayout | None],
) -> None:
    """Check and index one block; note how it lies in the map in `layouts`."""
    shard, begin, end = record
    rows = scan.figures.rows
    tokens = scan.figures.tokens
    positions = (0, 0, 0, 0)
    largest = 0
    for batch in batches:
        if batch.num_rows == 0:
            continue
        for piece in pieces_of(batch, shard=where.shard, with_mask=scan.loss_mask is LossMask.COLUMN):
            _add_piece(scan, piece, where, scan.figures.rows - rows)
        layout, positions = _positions(batch, mapped)
        layouts.add(layout)
        largest = max(largest, batch.nbytes)
    decoding = decoding_bytes(scan.discovery.format, largest_batch_bytes=largest, encoded_bytes=end - begin)
    figures = (scan.figures.rows - rows, begin, end, *positions, scan.figures.tokens - tokens, decoding)
    scan.building.append(BLOCKS, np.array([shard, *figures], dtype="<i8"))


def _add_piece(scan: _Scan, piece: Piece, where: _Where, row: int) -> None:
    fault = first_fault(piece)
    if fault is not None:
        raise _refusal(fault, where, scan.figures.rows, row)
    entries = index_piece(piece)
    scan.figures.add(entries)
    scan.building.append(LENGTHS, entries.lengths)
    scan.building.append(FIRST_TARGETS, entries.first_targets)
    scan.building.append(TARGETS, entries.targets)


def _refusal(fault: Fault, where: _Where, store_row: int, block_row: int) -> StoreRefusedError:
    """`store_row`: rows before the piece in the store; `block_row`: rows before it in its block."""
    row = store_row + fault.row
    shard_row = where.row + block_row + fault.row
    place_text = f"shard '{where.shard}', {where.unit} {where.block}, row {shard_row} of the shard"
    return StoreRefusedError(
        f"{fault.text.replace('{row}', str(row))} ({place_text}, column '{fault.column}')",
        row=row,
        shard=where.shard,
        shard_row=shard_row,
        block=where.block,
        column=fault.column,
    )


def _positions(
    batch: pa.RecordBatch, mapped: MappedFile | None
) -> tuple[ShardLayout | None, tuple[int, int, int, int]]:
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

    def __init__(self, source: ByteSource, scan: _Scan) -> None:
        self._source = source
        self._scan = scan
        self._done = 0
        self._hash = xxhash.xxh3_128()

    def advance(self, end: int) -> None:
        """Hash on up to byte `end`."""
        while self._done < end:
            chunk = self._source.read(self._done, min(end, self._done + _HASH_CHUNK))
            if not chunk:
                return
            self._hash.update(chunk)
            self._done += len(chunk)
            self._scan.hashed(len(chunk))

    def hexdigest(self) -> str:
        """The digest of what was hashed."""
        return self._hash.hexdigest()


@contextmanager
def _unchanged(files: StoreFiles, relative: str) -> Iterator[FileStamp]:
    """Refuse a file that changes while it is scanned."""
    before = files.stat(relative)
    yield before
    if files.stat(relative) != before:
        raise StoreRefusedError(
            f"Shard '{relative}' changed while it was being read. Admit a store when it is complete.", shard=relative
        )
