"""One rank's micro-batch of one round, gathered straight into the buffers that go on the wire."""

import numpy as np

from dataserver.batching.table import SourceTable
from dataserver.planning.plan import Plan
from dataserver.wire.micro_batch import encode_micro_batch, footprints


def encode_planned(
    plan: Plan, table: SourceTable, *, round_index: int, dp_rank: int, alignment: int, pad_to: int, sync_weights: bool
) -> bytes:
    """Return the serialized `StreamMicroBatchesResponse` of `plan.rounds[round_index][dp_rank]`.

    With `pad_to` its positions are a multiple of that, and never none; 0: no padding.
    """
    indices = plan.rounds[round_index][dp_rank]
    lengths = plan.lengths[indices]
    occupied = footprints(lengths, alignment)
    ends = np.cumsum(occupied)
    positions = int(ends[-1]) if len(ends) else 0
    if pad_to:
        positions = max(1, -(-positions // pad_to)) * pad_to
    tokens = np.zeros(positions, np.uint16) if table.token_bytes == 2 else np.zeros(positions, np.uint32)
    loss_mask = np.zeros(positions, dtype=np.uint8)
    if len(indices):
        table.read_into(plan.samples.take(indices), tokens, loss_mask, ends - occupied)
    return encode_micro_batch(
        step=plan.step,
        round_index=round_index,
        sync_weights=sync_weights,
        alignment=alignment,
        lengths=lengths,
        tokens=tokens,
        loss_mask=loss_mask,
    )
