"""One rank's micro-batches of some rounds: samples copied from the stores to their places in a message.

    rounds ──> rows of all of them ──all but tokens──> sizes ──> message <──tokens── rows

What a read and a message cost whatever their size is paid once for all. Masks are read first: with them every size is
known, and tokens are copied once, to where they are sent from. Only what had to be decoded is read whole at once, as it
may be gone from the block cache a moment later.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dataserver.batching.table import ImageFormat, SourceTable
from dataserver.errors import InternalError
from dataserver.planning.plan import Plan
from dataserver.stores.destination import Destination
from dataserver.stores.row_copy import copy_rows
from dataserver.wire.images import ImageSlices
from dataserver.wire.micro_batch import footprints
from dataserver.wire.micro_batch_writer import MicroBatchWriter


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """Micro-batches, each a serialized `StreamMicroBatchesResponse`, end to end, and where each ends.

    `tokens`: of all of them, without padding. Any of them that follow each other are a response, too.
    """

    message: bytes
    ends: tuple[int, ...]
    tokens: int

    @classmethod
    def joined(cls, groups: Sequence[Self]) -> Self:
        """Several, end to end."""
        begins = accumulate((len(group.message) for group in groups), initial=0)
        return cls(
            message=b"".join(group.message for group in groups),
            ends=tuple(begin + end for begin, group in zip(begins, groups, strict=False) for end in group.ends),
            tokens=sum(group.tokens for group in groups),
        )

    def __len__(self) -> int:
        """How many micro-batches."""
        return len(self.ends)

    def some(self, first: int, count: int) -> bytes:
        """`count` of them, at least one, from number `first` on: all of them without a copy."""
        return self.message[self.ends[first - 1] if first else 0 : self.ends[first + count - 1]]


def encode_planned(
    plan: Plan, table: SourceTable, *, rounds: range, dp_rank: int, alignment: int, pad_to: int, sync_weights: bool
) -> Encoded:
    """The micro-batches `plan.rounds[index][dp_rank]` of `rounds`, at least one.

    With `pad_to` the positions of each are a multiple of that, and never none; 0: no padding.
    """
    members = [plan.rounds[index][dp_rank] for index in rounds]
    indices = np.concatenate(members)
    samples, lengths = plan.samples.take(indices), plan.lengths[indices]
    counts = np.array([len(each) for each in members])
    row_ends, position_ends, begins = _places(counts, footprints(lengths, alignment), pad_to)
    room = table.room(begins, int(position_ends[-1]), covered=alignment == 1 and not pad_to, tokens=table.decodes)
    table.read(samples, lengths, room)
    if room.loss_mask is None:
        raise InternalError("micro-batches were gathered without a mask")
    writer = MicroBatchWriter(
        step=plan.step,
        first_round=rounds.start,
        sync_weights=sync_weights,
        token_bytes=table.token_bytes,
        alignment=alignment,
        row_ends=row_ends,
        position_ends=position_ends,
        begins=begins,
        lengths=lengths,
        loss_mask=room.loss_mask,
        loss_weight=room.loss_weight,
        images=_images(plan, rounds, row_ends, room, table.images),
    )
    if room.tokens is None:
        table.read(samples, lengths, Destination(begins=writer.token_begins, tokens=writer.tokens))
    else:
        copy_rows(room.tokens, begins, lengths, writer.tokens, writer.token_begins, what="a gathered micro-batch")
    return Encoded(message=writer.finish(), ends=writer.ends, tokens=int(lengths.sum()))


def prepare_encoding() -> None:
    """Have what writes messages compiled. Seconds, once a machine."""
    none = np.zeros(0, dtype=np.int64)
    MicroBatchWriter(
        step=1,
        first_round=0,
        sync_weights=False,
        token_bytes=4,
        alignment=1,
        row_ends=np.zeros(1, dtype=np.int64),
        position_ends=np.zeros(1, dtype=np.int64),
        begins=none,
        lengths=none,
        loss_mask=none.astype(np.uint8),
    ).finish()


def _places(
    counts: NDArray[np.int64], occupied: NDArray[np.int64], pad_to: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Where each micro-batch ends among the rows and the positions of all (int64[k]), and where each row begins.

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
    return row_ends, position_ends, begins


def _images(
    plan: Plan, rounds: range, row_ends: NDArray[np.int64], read: Destination, images: ImageFormat | None
) -> list[ImageSlices | None]:
    """The images of each image round, which has them also where the rank has no sample."""
    if images is None:
        return []
    rows = [slice(begin, end) for begin, end in pairwise([0, *row_ends.tolist()])]
    return [
        ImageSlices(
            pixel_bytes=images.pixel_bytes,
            patch_values=images.patch_values,
            grids=read.grids[each],
            pixels=read.pixels[each],
        )
        if plan.is_image_round(index)
        else None
        for index, each in zip(rounds, rows, strict=True)
    ]
