"""One rank's micro-batch of one round, joined from slices of the stores into the buffers that go on the wire."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dataserver.batching.table import ImageFormat, SourceTable
from dataserver.planning.plan import Plan
from dataserver.stores.slices import Buffer, Slices
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
    gaps = footprints(lengths, alignment) - lengths
    behind = 0
    if pad_to:
        positions = int(lengths.sum() + gaps.sum())
        behind = max(1, -(-positions // pad_to)) * pad_to - positions
    slices = table.read(plan.samples.take(indices))
    return encode_micro_batch(
        step=plan.step,
        round_index=round_index,
        sync_weights=sync_weights,
        alignment=alignment,
        lengths=lengths,
        tokens=np.frombuffer(_joined(slices.tokens, gaps, behind, table.token_bytes), f"<u{table.token_bytes}"),
        loss_mask=np.frombuffer(_joined(slices.loss_mask, gaps, behind, 1), np.uint8),
        loss_weight=np.frombuffer(_joined(slices.loss_weight, gaps, behind, 4), "<f4") if table.is_weighted else None,
        images=_images(slices, table.images) if plan.is_image_round(round_index) else None,
    )


def _images(slices: Slices, images: ImageFormat | None) -> ImageSlices | None:
    """The images of an image round, which has them also where the rank has no sample."""
    if images is None:
        return None
    return ImageSlices(
        pixel_bytes=images.pixel_bytes, patch_values=images.patch_values, grids=slices.grids, pixels=slices.pixels
    )


def _joined(slices: Sequence[Buffer], gaps: NDArray[np.int64], behind: int, itemsize: int) -> bytes:
    """The slices end to end, `gaps[i]` zeros after slice i and `behind` more at the end."""
    parts = list(slices)
    if gaps.any():
        parts = [
            part for piece, gap in zip(slices, gaps.tolist(), strict=True) for part in (piece, bytes(gap * itemsize))
        ]
    if behind:
        parts.append(bytes(behind * itemsize))
    return b"".join(parts)
