"""The bound on a message holds for every micro-batch that the batch spec allows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataserver.run_spec import BatchSpec
from dataserver.streaming.message_size import largest_message_bytes
from dataserver.wire.micro_batch_writer import MicroBatchWriter


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32])
@given(
    length=st.sampled_from([2, 3, 127, 128, 129, 500, 4000]),
    alignment=st.sampled_from([1, 2, 16]),
    micro_batch_tokens=st.integers(4000, 9000),
)
def test_a_full_micro_batch_is_within_the_bound(dtype, length: int, alignment: int, micro_batch_tokens: int) -> None:
    footprint = -(-length // alignment) * alignment
    count = micro_batch_tokens // footprint
    positions = count * footprint
    data = MicroBatchWriter(
        step=2**62,
        first_round=2**30,
        sync_weights=True,
        token_bytes=np.dtype(dtype).itemsize,
        alignment=alignment,
        row_ends=np.array([count]),
        position_ends=np.array([positions]),
        begins=footprint * np.arange(count),
        lengths=np.full(count, length, dtype=np.int64),
        loss_mask=(np.arange(positions) % footprint < length).astype(np.uint8),
    ).finish()
    batch = BatchSpec(step_samples=1, micro_batch_tokens=micro_batch_tokens, alignment=alignment)
    assert len(data) <= largest_message_bytes(batch, np.dtype(dtype).itemsize)
