"""What the checksum of a micro-batch covers: all of it."""

from collections.abc import Sequence

import numpy as np
import xxhash
from numpy.typing import NDArray

from dataserver.v1 import batch_service_pb2 as pb
from dataserver.wire.fields import Payload


def checksum_of(
    message: pb.MicroBatch,
    lengths: NDArray[np.int64],
    padding: int,
    *,
    mask: Payload,
    weights: Payload,
    images: Sequence[Payload],
    tokens: Payload,
) -> int:
    """XXH3-64 over the small fields of `message`, the `lengths` (int64[n]), and the large fields as they are sent.

    `padding` is given apart, because it is not yet in the message when it is written.
    """
    numbers = (message.round, message.sync_weights, message.token_bytes, message.alignment, message.target_count)
    sizes = (len(weights), sum(map(len, images)))
    digest = xxhash.xxh3_64(np.array([message.step, *numbers, padding, *sizes], dtype="<u8").tobytes())
    digest.update(lengths.astype("<u4").tobytes())
    for part in (mask, weights, *images, tokens):
        digest.update(part)
    return digest.intdigest()
