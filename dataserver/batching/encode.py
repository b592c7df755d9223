"""One rank's micro-batches of some rounds: samples copied from the stores to their places, as bytes for the wire.

    rounds ──> rows of all of them ──one read──> room ──cut──> micro-batch │ micro-batch │ …   one response

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
    """Micro-batches as one serialized `StreamMicroBatchesResponse`: the i-th ends at byte `ends[i]` of `data`.

    `tokens`: of all of them, without padding. Any of them that follow each other are a response, too.
    """

    data: bytes
    ends: tuple[int, ...]
    tokens: int

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Several, end to end."""
        shifts = np.cumsum([0, *(len(part.data) for part in parts)]).tolist()
        return cls(
            data=b"".join(part.data for part in parts),
            ends=tuple(shift + end for shift, part in zip(shifts, parts, strict=False) for end in part.ends),
            tokens=sum(part.tokens for part in parts),
        )

    def some(self, first: int, count: int) -> bytes:
        """`count` of them, from number `first` on."""
        begin = self.ends[first - 1] if first else 0
        return self.data[begin : self.ends[first + count - 1]]


def encode_planned(
    plan: Plan, table: SourceTable, *, rounds: range, dp_rank: int, alignment: int, pad_to: int, sync_weights: bool
) -> Encoded:
    """The micro-batches `plan.rounds[index][dp_rank]` of `rounds`, at least one.

    With `pad_to` the positions of each are a multiple of that, and never none; 0: no padding.
    """
    members = [plan.rounds[index][dp_rank] for index in rounds]
    indices = np.concatenate(members)
    lengths = plan.lengths[indices]
    places, begins = _places(rounds, [len(each) for each in members], footprints(lengths, alignment), pad_to)
    size, covered = places[-1].positions.stop, alignment == 1 and not pad_to
    room = table.room(begins, size, covered=covered)
    table.read(plan.samples.take(indices), lengths, room)
    if room.tokens is None or room.loss_mask is None:
        raise InternalError("micro-batches were gathered without tokens or without a mask")
    parts: list[Payload] = []
    ends: list[int] = []
    for place in places:
        found = micro_batch_parts(
            step=plan.step,
            round_index=place.round_index,
            sync_weights=sync_weights,
            alignment=alignment,
            lengths=lengths[place.rows],
            tokens=room.tokens[place.positions],
            loss_mask=room.loss_mask[place.positions],
            loss_weight=None if room.loss_weight is None else room.loss_weight[place.positions],
            images=_images(room, place.rows, table.images) if plan.is_image_round(place.round_index) else None,
        )
        parts += found
        ends.append((ends[-1] if ends else 0) + sum(map(len, found)))
    return Encoded(data=b"".join(parts), ends=tuple(ends), tokens=int(lengths.sum()))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where a micro-batch lies among those that are read with it."""

    round_index: int
    rows: slice
    positions: slice


def _places(
    rounds: range, counts: Sequence[int], occupied: NDArray[np.int64], pad_to: int
) -> tuple[list[_Place], NDArray[np.int64]]:
    """The place of each micro-batch, and the position at which each row of all of them begins, int64[n].

    `counts`: how many rows each has. `occupied`: int64[n], positions of each row.
    """
    places: list[_Place] = []
    begins: list[NDArray[np.int64]] = []
    row = at = 0
    for index, count in zip(rounds, counts, strict=True):
        rows = slice(row, row + count)
        ends = np.cumsum(occupied[rows])
        size = int(ends[-1]) if count else 0
        if pad_to:
            size = max(1, -(-size // pad_to)) * pad_to
        begins.append(at + ends - occupied[rows])
        places.append(_Place(round_index=index, rows=rows, positions=slice(at, at + size)))
        row, at = row + count, at + size
    return places, np.concatenate(begins)


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
