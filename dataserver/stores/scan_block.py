"""One block under scan: every row checked and indexed, whatever file it comes from.

record batches ──> pieces: first fault? ──> index arrays, appended as they come
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import pyarrow as pa

from dataserver.errors import StoreRefusedError
from dataserver.stores.admission import Fault, first_fault
from dataserver.stores.discovery import Discovery
from dataserver.stores.index import Building
from dataserver.stores.piece_index import RunningFigures, index_piece
from dataserver.stores.pieces import Piece, pieces_of
from dataserver.stores.schema import LossMask
from dataserver.stores.tables import FIRST_TARGETS, LENGTHS, TARGETS


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """The block under scan, for messages: numbers within the shard."""

    shard: str
    unit: str
    block: int
    row: int


@dataclass(slots=True, kw_only=True)
class Scan:
    """What one pass carries along.

    `figures` count the rows of `building`, which follow `first_row` rows of the store. `hashed` is told of bytes that
    are done.
    """

    discovery: Discovery
    loss_mask: LossMask
    building: Building
    hashed: Callable[[int], None]
    first_row: int = 0
    figures: RunningFigures = field(default_factory=RunningFigures)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockFigures:
    """What came of a block; `largest_bytes`: of its record batches."""

    rows: int
    tokens: int
    largest_bytes: int


def scan_block(scan: Scan, where: Where, batches: Iterable[pa.RecordBatch]) -> BlockFigures:
    """Check and index one block; raises `StoreRefusedError` for its first fault."""
    rows, tokens, largest = scan.figures.rows, scan.figures.tokens, 0
    for batch in batches:
        if batch.num_rows == 0:
            continue
        for piece in pieces_of(batch, shard=where.shard, with_mask=scan.loss_mask is LossMask.COLUMN):
            _add_piece(scan, piece, where, scan.figures.rows - rows)
        largest = max(largest, batch.nbytes)
    return BlockFigures(rows=scan.figures.rows - rows, tokens=scan.figures.tokens - tokens, largest_bytes=largest)


def _add_piece(scan: Scan, piece: Piece, where: Where, row: int) -> None:
    fault = first_fault(piece)
    if fault is not None:
        raise _refusal(fault, where, scan.first_row + scan.figures.rows, row)
    entries = index_piece(piece)
    scan.figures.add(entries)
    scan.building.append(LENGTHS, entries.lengths)
    scan.building.append(FIRST_TARGETS, entries.first_targets)
    scan.building.append(TARGETS, entries.targets)


def _refusal(fault: Fault, where: Where, store_row: int, block_row: int) -> StoreRefusedError:
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
