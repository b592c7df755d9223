"""One block under scan: every row checked and indexed, whatever file it comes from.

record batches ──> pieces: first fault? ──> index arrays, appended as they come
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa
from numpy.typing import NDArray

from dataserver.errors import StoreRefusedError
from dataserver.stores.admission import first_fault
from dataserver.stores.discovery import Discovery
from dataserver.stores.faults import Fault
from dataserver.stores.image_index import ImageIndex
from dataserver.stores.index import Building
from dataserver.stores.manifest import WEIGHTS
from dataserver.stores.piece_index import RunningFigures, index_piece
from dataserver.stores.pieces import Piece, pieces_of
from dataserver.stores.schema import LOSS_WEIGHT, LossMask
from dataserver.stores.tables import FIRST_TARGETS, LENGTHS, TARGETS


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """The block under scan, for messages: numbers within the shard."""

    shard: str
    unit: str
    block: int
    row: int


class Appends(Protocol):
    """Where the index of a block goes."""

    def append(self, name: str, array: NDArray[Any]) -> None:
        """Add the numbers of `array` to the end of the array `name`."""


class BlockScan(Protocol):
    """What `scan_block` needs: see `Scan`."""

    loss_mask: LossMask
    images: ImageIndex | None
    first_row: int
    figures: RunningFigures

    @property
    def building(self) -> Appends:
        """Where the index goes."""


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
    images: ImageIndex | None
    first_row: int = 0
    figures: RunningFigures = field(default_factory=RunningFigures)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockFigures:
    """What came of a block.

    `largest_bytes`: of its record batches. `extra_bytes`: what weights and images take when it is decoded.
    """

    rows: int
    tokens: int
    largest_bytes: int
    extra_bytes: int


def scan_block(scan: BlockScan, where: Where, batches: Iterable[pa.RecordBatch]) -> BlockFigures:
    """Check and index one block; raises `StoreRefusedError` for its first fault."""
    rows, tokens, largest = scan.figures.rows, scan.figures.tokens, 0
    image_bytes, has_weights = _image_bytes(scan), False
    for batch in batches:
        if batch.num_rows == 0:
            continue
        for piece in pieces_of(batch, shard=where.shard, with_mask=scan.loss_mask is LossMask.COLUMN):
            _add_piece(scan, piece, where, scan.figures.rows - rows)
        largest = max(largest, batch.nbytes)
        has_weights = LOSS_WEIGHT in batch.schema.names
    tokens = scan.figures.tokens - tokens
    return BlockFigures(
        rows=scan.figures.rows - rows,
        tokens=tokens,
        largest_bytes=largest,
        extra_bytes=_image_bytes(scan) - image_bytes + (4 * tokens if has_weights else 0),
    )


def _image_bytes(scan: BlockScan) -> int:
    """Of all images so far, decoded."""
    return 0 if scan.images is None else scan.images.decoded_bytes


def _add_piece(scan: BlockScan, piece: Piece, where: Where, row: int) -> None:
    fault = first_fault(piece, 0 if scan.images is None else scan.images.patch_values)
    if fault is not None:
        raise _refusal(fault, where, scan.first_row + scan.figures.rows, row)
    entries = index_piece(piece)
    if scan.images is not None and entries.images is not None:
        scan.images.add(piece, entries.images, scan.figures.rows)
    scan.figures.add(entries)
    scan.building.append(LENGTHS, entries.lengths)
    scan.building.append(FIRST_TARGETS, entries.first_targets)
    scan.building.append(TARGETS, entries.targets)
    if entries.weights is not None:
        scan.building.append(WEIGHTS, entries.weights)


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
