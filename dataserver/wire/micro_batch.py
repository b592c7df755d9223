"""The hot message: a micro-batch as bytes and as arrays.

Protobuf's Python runtime copies the token bytes once to build the message and once more to
serialise it, and once to read it. So the large fields are written and read by hand here,
as exactly the bytes that any protobuf implementation would write:

    response tag | length | small fields (by protobuf) | lengths tag, length, numbers | loss_mask tag, length, bits |
        loss_weight tag, length, floats | images tag, length, `images` | tokens tag, length, bytes
"""

import struct
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from dataserver.errors import ChecksumMismatchError
from dataserver.v1 import batch_service_pb2 as pb
from dataserver.wire.checksum import checksum_of
from dataserver.wire.fields import Payload, field, fields_of, header, split
from dataserver.wire.images import Images, ImageSlices, decode_images, encode_images

NO_TARGET: Final = -100
"""Label of a position that predicts nothing; the value that PyTorch's cross entropy ignores."""

_TOKEN_TYPES: Final[dict[int, np.dtype[Any]]] = {2: np.dtype("<u2"), 4: np.dtype("<u4")}
_LENGTH_TYPE: Final = np.dtype("<u4")
_WEIGHT_TYPE: Final = np.dtype("<f4")

# Field number << 3 | wire type; 2 is length-delimited.
_MICRO_BATCH: Final = 3 << 3 | 2
_LENGTHS: Final = 9 << 3 | 2
_LOSS_MASK: Final = 10 << 3 | 2
_LOSS_WEIGHT: Final = 11 << 3 | 2
_IMAGES: Final = 12 << 3 | 2
_TOKENS: Final = 15 << 3 | 2
_LARGE: Final = frozenset((_LENGTHS, _LOSS_MASK, _LOSS_WEIGHT, _IMAGES, _TOKENS))


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
    `loss_weight`: float32[m], read-only, the weight of the token's cross entropy where it is a target; None: all are 1.
    `target_count`: targets that have a predecessor in their sub-sequence, those of weight 0 too.
    `images`: None in a round of text. All ranks of a round have the same modality: where it is images, a micro-batch
    without weight has an empty `images`, by which a rank knows that the others run their vision tower.
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
    loss_weight: NDArray[np.float32] | None = None
    images: Images | None = None

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
        targets = self._predicted()
        labels[targets - 1] = self.tokens[targets]
        return labels

    @property
    def label_weights(self) -> NDArray[np.float32]:
        """Weight of what each position predicts, float32[m]; 0 where it predicts nothing."""
        weights = np.zeros(len(self.tokens), dtype=np.float32)
        targets = self._predicted()
        weights[targets - 1] = 1 if self.loss_weight is None else self.loss_weight[targets]
        return weights

    def _predicted(self) -> NDArray[np.int64]:
        """Positions of the targets that have a predecessor, ascending."""
        predicted = self.loss_mask.copy()
        predicted[self.cu_seqlens[:-1]] = False
        return np.flatnonzero(predicted)


def footprints(lengths: NDArray[np.int64], alignment: int) -> NDArray[np.int64]:
    """Round `lengths` (int64[n]) up to multiples of `alignment`."""
    return lengths if alignment == 1 else -(-lengths // alignment) * alignment


def micro_batch_parts(
    *,
    step: int,
    round_index: int,
    sync_weights: bool,
    alignment: int,
    lengths: NDArray[np.int64],
    tokens: NDArray[np.uint16] | NDArray[np.uint32],
    loss_mask: NDArray[np.uint8],
    loss_weight: NDArray[np.float32] | None = None,
    images: ImageSlices | None = None,
) -> list[Payload]:
    """Write a whole `StreamMicroBatchesResponse` of one micro-batch, in parts that lie end to end.

    Several of them are one response, too. The large parts are the arrays' own memory.

    `lengths`: int64[n]. `tokens`: uint16[m] or uint32[m]. `loss_mask`: uint8[m] of 0 and 1. `loss_weight`: float32[m].
    Positions of those beyond the sub-sequences' are padding. `images`: those of n sub-sequences, in an image round.
    """
    occupied = footprints(lengths, alignment)
    ends = occupied.cumsum()
    # The first token of a sub-sequence has no predecessor, and is nobody's target.
    first_targets = np.count_nonzero(loss_mask[ends - occupied])
    message = pb.MicroBatch(
        step=step,
        round=round_index,
        sync_weights=sync_weights,
        token_bytes=tokens.itemsize,
        alignment=alignment,
        target_count=int(np.count_nonzero(loss_mask) - first_targets),
        padding=len(tokens) - (int(ends[-1]) if len(ends) else 0),
    )
    length_bytes = _bytes_of(lengths, _LENGTH_TYPE)
    mask_bytes = np.packbits(loss_mask, bitorder="little").data
    weight_bytes = b"" if loss_weight is None else _bytes_of(loss_weight, _WEIGHT_TYPE)
    token_bytes = _bytes_of(tokens, _TOKEN_TYPES[tokens.itemsize])
    image_parts = [] if images is None else encode_images(images)
    message.checksum = checksum_of(
        message, lengths=length_bytes, mask=mask_bytes, weights=weight_bytes, images=image_parts, tokens=token_bytes
    )
    parts: list[Payload] = [message.SerializeToString()]
    parts += field(_LENGTHS, length_bytes)
    parts += field(_LOSS_MASK, mask_bytes)
    parts += field(_LOSS_WEIGHT, weight_bytes)
    if images is not None:
        parts += [header(_IMAGES, sum(map(len, image_parts))), *image_parts]
    parts += field(_TOKENS, token_bytes)
    return [header(_MICRO_BATCH, sum(map(len, parts))), *parts]


def decode_micro_batches(data: bytes) -> list[MicroBatch]:
    """Read what `micro_batch_parts` wrote, once or several times end to end; the arrays are views of `data`.

    Raises `ChecksumMismatchError` when a bit of it differs from what was sent.
    """
    try:
        whole = memoryview(data)
        return [_decode(whole[begin:end]) for tag, _, begin, end in fields_of(whole) if _is_micro_batch(tag)]
    except (DecodeError, IndexError, OverflowError, struct.error) as error:
        raise ChecksumMismatchError(f"{len(data)} bytes that are no micro-batches") from error


def are_micro_batches(data: bytes) -> bool:
    """Tell whether a serialized `StreamMicroBatchesResponse` carries micro-batches."""
    return data[:1] == bytes([_MICRO_BATCH])


def _is_micro_batch(tag: int) -> bool:
    if tag != _MICRO_BATCH:
        raise DecodeError(f"field {tag >> 3} among micro-batches")
    return True


def _decode(data: memoryview) -> MicroBatch:
    small, large = split(data, _LARGE)
    message = pb.MicroBatch.FromString(small)
    length_bytes, mask_bytes, weight_bytes, token_bytes = (
        large.get(tag, b"") for tag in (_LENGTHS, _LOSS_MASK, _LOSS_WEIGHT, _TOKENS)
    )
    image_bytes = large.get(_IMAGES)
    images = [] if image_bytes is None else [image_bytes]
    checksum = checksum_of(
        message, lengths=length_bytes, mask=mask_bytes, weights=weight_bytes, images=images, tokens=token_bytes
    )
    where = f"step {message.step}, round {message.round}"
    if message.checksum != checksum:
        raise ChecksumMismatchError(f"{where}: the micro-batch arrived damaged", step=message.step, round=message.round)
    if message.token_bytes not in _TOKEN_TYPES or message.alignment < 1 or len(length_bytes) % _LENGTH_TYPE.itemsize:
        raise ChecksumMismatchError(
            f"{where}: impossible token_bytes {message.token_bytes}, alignment {message.alignment} or "
            f"{len(length_bytes)} bytes of lengths"
        )
    lengths = np.frombuffer(length_bytes, dtype=_LENGTH_TYPE).astype(np.int64)
    positions = int(footprints(lengths, message.alignment).sum()) + message.padding
    sizes = (len(token_bytes), len(mask_bytes), len(weight_bytes))
    if sizes != (positions * message.token_bytes, -(-positions // 8), positions * 4 if weight_bytes else 0):
        raise ChecksumMismatchError(
            f"{where}: {positions} positions but {sizes[0]} token bytes, {sizes[1]} mask bytes, {sizes[2]} weight bytes"
        )
    bits = np.frombuffer(mask_bytes, dtype=np.uint8)
    loss_mask = np.unpackbits(bits, count=positions, bitorder="little").view(np.bool_)
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
        loss_weight=np.frombuffer(weight_bytes, dtype=_WEIGHT_TYPE) if weight_bytes else None,
        images=None if image_bytes is None else decode_images(image_bytes, len(lengths), where),
    )


def _bytes_of(values: NDArray[Any], dtype: np.dtype[Any]) -> Payload:
    """The memory of an array, or of a copy where it is not as it is sent."""
    return np.ascontiguousarray(values, dtype=dtype).data.cast("B")
