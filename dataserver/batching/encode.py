"""One rank's micro-batch of one round: its samples copied from the stores to their places, as bytes for the wire."""

from dataserver.batching.table import ImageFormat, SourceTable
from dataserver.errors import InternalError
from dataserver.planning.plan import Plan
from dataserver.stores.destination import Destination
from dataserver.wire.images import ImageSlices
from dataserver.wire.micro_batch import encode_micro_batch, footprints


def encode_planned(
    plan: Plan, table: SourceTable, *, round_index: int, dp_rank: int, alignment: int, pad_to: int, sync_weights: bool
) -> bytes:
    """Return the serialized `StreamMicroBatchesResponse` of `plan.rounds[round_index][dp_rank]`.

    With `pad_to` its positions are a multiple of that, and never none; 0: no padding.
    """
    indices = plan.rounds[round_index][dp_rank]
    lengths = plan.lengths[indices]
    gaps = footprints(lengths, alignment) - lengths if alignment > 1 else None
    behind = 0
    if pad_to:
        positions = int(lengths.sum()) + (0 if gaps is None else int(gaps.sum()))
        behind = max(1, -(-positions // pad_to)) * pad_to - positions
    room = table.room(lengths, gaps, behind=behind)
    table.read(plan.samples.take(indices), lengths, room)
    if room.tokens is None or room.loss_mask is None:
        raise InternalError("a micro-batch was gathered without tokens or without a mask")
    return encode_micro_batch(
        step=plan.step,
        round_index=round_index,
        sync_weights=sync_weights,
        alignment=alignment,
        lengths=lengths,
        tokens=room.tokens,
        loss_mask=room.loss_mask,
        loss_weight=room.loss_weight,
        images=_images(room, table.images) if plan.is_image_round(round_index) else None,
    )


def _images(read: Destination, images: ImageFormat | None) -> ImageSlices | None:
    """The images of an image round, which has them also where the rank has no sample."""
    if images is None:
        return None
    return ImageSlices(
        pixel_bytes=images.pixel_bytes, patch_values=images.patch_values, grids=read.grids, pixels=read.pixels
    )
