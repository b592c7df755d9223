"""The hot message: a micro-batch as bytes and as arrays.

Protobuf's Python runtime copies the token bytes once to build the message and once more to
serialise it, and once to read it. So the two large fields are written and read by hand here,
as exactly the bytes that any protobuf implementation would write:

    response tag | length | small fields (by protobuf) | loss_mask tag, length, bits | padding |
        tokens tag, length, bytes

Encoding: https://protobuf.dev/programming-guides/encoding/.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import xxhash
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from dataserver.errors import ChecksumMismatchError
from dataserver.v1 import batch_service_pb2
from dataserver.wire.fields import fields_of, read_varint, varint

NO_TARGET: Final = -100
"""Label of a position that predicts nothing; the value that PyTorch's cross entropy ignores."""

_TOKEN_TYPES: Final[dict[int, np.dtype[Any]]] = {2: np.dtype("<u2"), 4: np.dtype("<u4")}

# Field number << 3 | wire type; 2 is length-delimited.
_RESPONSE_MICRO_BATCH: Final = 3 << 3 | 2
_LOSS_MASK: Final = 9 << 3 | 2
_TOKENS: Final = 15 << 3 | 2


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatch:
    """One packed sequence group, n sub-sequences over m positions.

    Sub-sequence i occupies `ceil(lengths[i] / alignment) * alignment` positions; those behind
    its length hold token 0 and no target. n = 0 is a micro-batch without weight: the rank still
    takes part in the round.

    `padding` positions follow the last sub-sequence and belong to it, likewise with token 0 and no
    target; where n = 0 they are one sub-sequence of their own.

    `lengths`: int64[n], tokens without padding. `tokens`: uint16[m] or uint32[m], read-only.
    `loss_mask`: bool[m], read-only, true where the token itself is a target, as the store has it.
    `target_count`: targets that have a predecessor in their sub-sequence.
    """

    step: int
    round: int
    sync_weights: bool
    alignment: int
    lengths: NDArray[np.int64]
    target_count: int
    padding: int = 0
    tokens: NDArray[np.uint16] | NDArray[np.uint32]
    loss_mask: NDArray[np.bool_]

    @property
    def footprints(self) -> NDArray[np.int64]:
        """Positions that each sub-sequence occupies, the last one's with `padding`: int64[n], or int64[1] for n = 0."""
        occupied = footprints(self.lengths, self.alignment)
        if not self.padding:
            return occupied
        return np.append(occupied[:-1], occupied[-1:].sum() + self.padding)

    @property
    def cu_seqlens(self) -> NDArray[np.int32]:
        """Where sub-sequences begin, and m at the end: int32[n + 1], as variable-length attention wants it."""
        return np.concatenate(([0], np.cumsum(self.footprints))).astype(np.int32)

    @property
    def positions(self) -> NDArray[np.int64]:
        """Position of each token in its own sub-sequence, int64[m]."""
        starts = self.cu_seqlens[:-1].astype(np.int64)
        return np.arange(len(self.tokens), dtype=np.int64) - np.repeat(starts, self.footprints)

    @property
    def labels(self) -> NDArray[np.int64]:
        """What each position predicts, int64[m]: the next token where that is a target, else `NO_TARGET`.

        A sub-sequence's first token has no predecessor and is predicted by nobody.
        """
        labels = np.full(len(self.tokens), NO_TARGET, dtype=np.int64)
        predicted = self.loss_mask.copy()
        predicted[self.cu_seqlens[:-1]] = False
        targets = np.flatnonzero(predicted)
        labels[targets - 1] = self.tokens[targets]
        return labels


Payload = bytes | memoryview


def footprints(lengths: NDArray[np.int64], alignment: int) -> NDArray[np.int64]:
    """Round `lengths` (int64[n]) up to multiples of `alignment`."""
    return -(-lengths // alignment) * alignment


def encode_micro_batch(
    *,
    step: int,
    round_index: int,
    sync_weights: bool,
    alignment: int,
    lengths: NDArray[np.int64],
    tokens: NDArray[np.uint16] | NDArray[np.uint32],
    loss_mask: NDArray[np.uint8],
) -> bytes:
    """Write a whole `StreamMicroBatchesResponse`.

    `lengths`: int64[n]. `tokens`: uint16[m] or uint32[m]. `loss_mask`: uint8[m] of 0 and 1. Positions
    of those beyond the sub-sequences' are padding.
    """
    token_bytes = np.ascontiguousarray(tokens, dtype=_TOKEN_TYPES[tokens.itemsize]).data.cast("B")
    mask_bytes = np.packbits(loss_mask, bitorder="little").tobytes()
    occupied = footprints(lengths, alignment)
    starts = np.cumsum(occupied) - occupied
    message = batch_service_pb2.MicroBatch(
        step=step,
        round=round_index,
        sync_weights=sync_weights,
        token_bytes=tokens.itemsize,
        alignment=alignment,
        lengths=lengths.tolist(),
        target_count=int(np.count_nonzero(loss_mask)) - int(np.count_nonzero(loss_mask[starts])),
    )
    # Protobuf writes fields by number, so this one stands between the two large ones.
    padding = batch_service_pb2.MicroBatch(padding=len(tokens) - int(occupied.sum()))
    message.checksum = _checksum(message, padding.padding, mask_bytes, token_bytes)
    parts: list[Payload] = [message.SerializeToString()]
    parts += _field(_LOSS_MASK, mask_bytes)
    parts += [padding.SerializeToString()]
    parts += _field(_TOKENS, token_bytes)
    length = sum(map(len, parts))
    return b"".join([varint(_RESPONSE_MICRO_BATCH), varint(length), *parts])


def decode_micro_batch(data: bytes) -> MicroBatch:
    """Read what `encode_micro_batch` wrote; the arrays are views of `data`.

    Raises `ChecksumMismatchError` when a bit of it differs from what was sent.
    """
    try:
        _, begin = read_varint(data, 1)
        return _decode(memoryview(data)[begin:])
    except (DecodeError, IndexError, OverflowError) as error:
        raise ChecksumMismatchError(f"{len(data)} bytes that are no micro-batch") from error


def is_micro_batch(data: bytes) -> bool:
    """Tell whether a serialized `StreamMicroBatchesResponse` begins with a micro-batch."""
    return data[:1] == bytes([_RESPONSE_MICRO_BATCH])


def _decode(data: memoryview) -> MicroBatch:
    small, mask_bytes, token_bytes = bytearray(), data[:0], data[:0]
    for tag, field, payload in fields_of(data):
        if tag == _LOSS_MASK:
            mask_bytes = payload
        elif tag == _TOKENS:
            token_bytes = payload
        else:
            small += field
    message = batch_service_pb2.MicroBatch.FromString(bytes(small))
    where = f"step {message.step}, round {message.round}"
    if message.checksum != _checksum(message, message.padding, mask_bytes, token_bytes):
        raise ChecksumMismatchError(f"{where}: the micro-batch arrived damaged", step=message.step, round=message.round)
    if message.token_bytes not in _TOKEN_TYPES or message.alignment < 1:
        raise ChecksumMismatchError(
            f"{where}: impossible token_bytes {message.token_bytes} or alignment {message.alignment}"
        )
    lengths = np.array(message.lengths, dtype=np.int64)
    positions = int(footprints(lengths, message.alignment).sum()) + message.padding
    if len(token_bytes) != positions * message.token_bytes or len(mask_bytes) != -(-positions // 8):
        raise ChecksumMismatchError(
            f"{where}: {positions} positions but {len(token_bytes)} token bytes and {len(mask_bytes)} mask bytes"
        )
    bits = np.unpackbits(np.frombuffer(mask_bytes, dtype=np.uint8), count=positions, bitorder="little")
    loss_mask = bits.view(np.bool_)
    loss_mask.flags.writeable = False
    return MicroBatch(
        step=message.step,
        round=message.round,
        sync_weights=message.sync_weights,
        alignment=message.alignment,
        lengths=lengths,
        target_count=message.target_count,
        padding=message.padding,
        tokens=np.frombuffer(token_bytes, dtype=_TOKEN_TYPES[message.token_bytes]),
        loss_mask=loss_mask,
    )


def _field(tag: int, payload: Payload) -> list[Payload]:
    return [varint(tag), varint(len(payload)), payload] if len(payload) else []


def _checksum(message: batch_service_pb2.MicroBatch, padding: int, mask_bytes: Payload, token_bytes: Payload) -> int:
    numbers = (message.round, message.sync_weights, message.token_bytes, message.alignment, message.target_count)
    digest = xxhash.xxh3_64(np.array([message.step, *numbers, padding], dtype="<u8").tobytes())
    digest.update(np.array(message.lengths, dtype="<u4").tobytes())
    digest.update(mask_bytes)
    digest.update(token_bytes)
    return digest.intdigest()
