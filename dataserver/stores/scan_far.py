"""The scan of a shard in object storage: fetched once, from its beginning to its end.

file ──> spans of a block ──┬─> digest of each ──> spans.i8
└─> checked and indexed as any other block
"""

from collections.abc import Sequence

import numpy as np

from dataserver.errors import StoreRefusedError
from dataserver.stores.far_files import FarFile, far_decoding_bytes, open_far_file
from dataserver.stores.files import ByteSource, FileStamp, Span
from dataserver.stores.layout import NOWHERE
from dataserver.stores.manifest import Shard
from dataserver.stores.read_through import ReadThrough
from dataserver.stores.scan_block import Scan, Where, scan_block
from dataserver.stores.schema import selected_columns, served_columns
from dataserver.stores.spans import HEADS, SPANS, span_record
from dataserver.stores.tables import BLOCKS


def scan_far_shard(scan: Scan, number: int, source: ByteSource, stamp: FileStamp) -> Shard:
    """Admit shard `number` of the store, an object."""
    begin_row = scan.figures.rows
    with ReadThrough(source, scan.hashed) as through:
        file = open_far_file(scan.discovery.format, through)
        names = [column.name for column in file.columns]
        selected = selected_columns(names, scan.loss_mask)
        blocks = zip(file.blocks(selected), file.blocks(served_columns(names, scan.loss_mask)), strict=True)
        count = 0
        for block, (checked, served) in enumerate(blocks):
            through.reach((*checked.spans, *served.spans))
            _note_spans(scan, through, number, block, served.spans)
            where = Where(shard=source.name, unit=file.unit, block=block, row=scan.figures.rows - begin_row)
            pieces = [(span, through.read(*span)) for span in checked.spans]
            found = scan_block(scan, where, file.decode(block, pieces, selected))
            if scan.images is not None:
                scan.images.place(0, 0)
            decoding = far_decoding_bytes(
                scan.discovery.format,
                columns=len(served_columns(names, scan.loss_mask)),
                largest_batch_bytes=found.largest_bytes,
                encoded_bytes=sum(end - begin for begin, end in served.spans),
            )
            positions = NOWHERE.positions
            extent = (number, found.rows, served.begin, served.end)
            record = (*extent, *positions, found.tokens, found.extra_bytes, decoding)
            scan.building.append(BLOCKS, np.array(record, dtype="<i8"))
            count += 1
        file.check_end(count)
        head, data = file.head
        _check_head(through, file, source.name)
        scan.building.append(HEADS, np.frombuffer(data, np.uint8))
        digest = through.hexdigest()
    return Shard(
        path=source.name,
        stamp=stamp,
        rows=scan.figures.rows - begin_row,
        digest=digest,
        columns=file.columns,
        layout=None,
        copy_digest="",
        head=head,
    )


def _note_spans(scan: Scan, through: ReadThrough, shard: int, block: int, spans: Sequence[Span]) -> None:
    for span in spans:
        scan.building.append(SPANS, span_record(shard, block, span, through.read(*span)))


def _check_head(through: ReadThrough, file: FarFile, name: str) -> None:
    """The head was read out of turn: what was checked must be what was hashed."""
    head, data = file.head
    through.reach([head])
    if through.read(*head) != data:
        raise StoreRefusedError(f"Shard '{name}' gave other bytes when it was read again.", shard=name)
