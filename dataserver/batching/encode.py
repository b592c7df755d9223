"""One rank's micro-batches of some rounds: samples copied from the stores to their places, as bytes for the wire.

    rounds ──> rows of all of them ──one read──> room ──cut──> micro-batch │ micro-batch │ …   parts of a response

What a read and a message cost whatever their size is paid once for all.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dataserver.batching.table import ImageFormat, SourceTable
from dataserver.errors import InternalError
from dataserver.planning.plan import Plan
from dataserver.stores.destination import Destination
from dataserver.wire.fields import Payload
from dataserver.wire.images import ImageSlices
from dataserver.wire.micro_batch import footprints, micro_batch_parts


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """Micro-batches, each as the parts of a serialized `StreamMicroBatchesResponse`, which lie end to end.

    `tokens`: of all of them, without padding. Any of them that follow each other are a response, too; how many go
    together is known when there are credits for them, and only then are the parts copied into one message.
    """

    parts: tuple[tuple[Payload, ...], ...]
    tokens: int

    @classmethod
    def joined(cls, groups: Sequence[Self]) -> Self:
        """Several, end to end."""
        return cls(
            parts=tuple(parts for group in groups for parts in group.parts),
            tokens=sum(group.tokens for group in groups),
        )

    def __len__(self) -> int:
        """How many micro-batches."""
        return len(self.parts)

    def some(self, first: int, count: int) -> bytes:
        """`count` of them, from number `first` on."""
        return b"".join(part for parts in self.parts[first : first + count] for part in parts)


def encode_planned(
    plan: Plan, table: SourceTable, *, rounds: range, dp_rank: int, alignment: int, pad_to: int, sync_weights: bool
) -> Encoded:
    """The micro-batches `plan.rounds[index][dp_rank]` of `rounds`, at least one.

    With `pad_to` the positions of each are a multiple of that, and never none; 0: no padding.
    """
    members = [plan.rounds[index][dp_rank] for index in rounds]
    indices = np.concatenate(members)
    lengths = plan.lengths[indices]
    counts = np.array([len(each) for each in members])
    row_ends, position_ends, begins = _places(counts, footprints(lengths, alignment), pad_to)
    size, covered = position_ends[-1], alignment == 1 and not pad_to
    room = table.room(begins, size, covered=covered)
    table.read(plan.samples.take(indices), lengths, room)
    if room.tokens is None or room.loss_mask is None:
        raise InternalError("micro-batches were gathered without tokens or without a mask")
    parts: list[tuple[Payload, ...]] = []
    rows, positions = slice(0), slice(0)
    for index, row_end, position_end in zip(rounds, row_ends, position_ends, strict=True):
        rows, positions = slice(rows.stop, row_end), slice(positions.stop, position_end)
        found = micro_batch_parts(
            step=plan.step,
            round_index=index,
            sync_weights=sync_weights,
            alignment=alignment,
            lengths=lengths[rows],
            tokens=room.tokens[positions],
            loss_mask=room.loss_mask[positions],
            loss_weight=None if room.loss_weight is None else room.loss_weight[positions],
            images=_images(room, rows, table.images) if plan.is_image_round(index) else None,
        )
        # Images are parts of the store's files, which are read here: a sender should not wait for a disk. And what is
        # alone in its group is sent as it is.
        is_whole = len(rounds) == 1 or plan.is_image_round(index)
        parts.append((b"".join(found),) if is_whole else tuple(found))
    return Encoded(parts=tuple(parts), tokens=int(lengths.sum()))


def _places(
    counts: NDArray[np.int64], occupied: NDArray[np.int64], pad_to: int
) -> tuple[list[int], list[int], NDArray[np.int64]]:
    """Where each micro-batch ends among the rows and the positions of all, and where each row begins, int64[n].

    `counts`: int64[k], how many rows each has. `occupied`: int64[n], positions of each row.
    """
    behind = np.concatenate(([0], occupied.cumsum()))
    row_ends = counts.cumsum()
    row_begins = row_ends - counts
    sizes = behind[row_ends] - behind[row_begins]
    if pad_to:
        sizes = np.maximum(1, -(-sizes // pad_to)) * pad_to
    position_ends = sizes.cumsum()
    begins = behind[:-1] + np.repeat(position_ends - sizes - behind[row_begins], counts)
    return row_ends.tolist(), position_ends.tolist(), begins


def _images(read: Destination, rows: slice, images: ImageFormat | None) -> ImageSlices | None:
    """The images of an image round, which has them also where the rank has no sample."""
    if images is None:
        return None
    return ImageSlices(
        pixel_bytes=images.pixel_bytes,
        patch_values=images.patch_values,
        grids=read.grids[rows],
        pixels=read.pixels[rows],
    )
