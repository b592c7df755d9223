"""What the checksum of a micro-batch covers: all of it."""

from collections.abc import Sequence
from struct import Struct
from typing import Final

import xxhash

from dataserver.v1 import batch_service_pb2 as pb
from dataserver.wire.fields import Payload

# Numbers that are covered before the lengths, each as 64 bits.
_NUMBERS: Final = Struct("<9Q")


def checksum_of(
    message: pb.MicroBatch,
    *,
    lengths: Payload,
    mask: Payload,
    weights: Payload,
    images: Sequence[Payload],
    tokens: Payload,
) -> int:
    """XXH3-64 over the small fields of `message` and the large ones as they are sent."""
    numbers = _NUMBERS.pack(
        message.step,
        message.round,
        message.sync_weights,
        message.token_bytes,
        message.alignment,
        message.target_count,
        message.padding,
        len(weights),
        sum(map(len, images)),
    )
    digest = xxhash.xxh3_64(numbers)
    for part in (lengths, mask, weights, *images, tokens):
        digest.update(part)
    return digest.intdigest()
