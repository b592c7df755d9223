"""The hot message: a micro-batch as arrays, and how it is read; `micro_batch_writer` shows how it lies in a message.

Protobuf's Python runtime copies the bytes of every field once to read it. So they are read by hand here, and arrays are
views of what arrived.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import xxhash
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from dataserver.errors import ChecksumMismatchError
from dataserver.wire import micro_batch_tags as tags
from dataserver.wire.fields import MAX_INT32, MAX_INT64, read_fields, read_varint
from dataserver.wire.images import Images, decode_images

NO_TARGET: Final = -100
"""Label of a position that predicts nothing; the value that PyTorch's cross entropy ignores."""

_TOKEN_TYPES: Final[dict[int, np.dtype[Any]]] = {2: np.dtype("<u2"), 4: np.dtype("<u4")}
_LENGTH_TYPE: Final = np.dtype("<u4")
_WEIGHT_TYPE: Final = np.dtype("<f4")
_NONE: Final = memoryview(b"")


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


def decode_micro_batches(data: bytes) -> list[MicroBatch]:
    """Read what `MicroBatchWriter` wrote; the arrays are views of `data`, those of tokens aligned where `data` is.

    Raises `ChecksumMismatchError` when a bit of it differs from what was sent.
    """
    try:
        return [_decode(body) for body in _bodies(memoryview(data))]
    except (DecodeError, IndexError, OverflowError) as error:
        raise ChecksumMismatchError(f"{len(data)} bytes that are no micro-batches") from error


def are_micro_batches(data: bytes) -> bool:
    """Tell whether a serialized `StreamMicroBatchesResponse` carries micro-batches."""
    return data[:1] == bytes([tags.MICRO_BATCH])


def _bodies(data: memoryview) -> Iterator[memoryview]:
    begin = 0
    while begin < len(data):
        if data[begin] != tags.MICRO_BATCH:
            raise DecodeError(f"{data[begin]} where micro-batches are expected")
        size, begin = read_varint(data, begin + 1)
        if size > len(data) - begin:
            raise DecodeError("a micro-batch ends behind its message")
        yield data[begin : begin + size]
        begin += size


def _decode(data: memoryview) -> MicroBatch:
    if data[0] != tags.CHECKSUM or data[1 : tags.CHECKSUM_BYTES] != _digest_of(data[tags.CHECKSUM_BYTES :]):
        raise ChecksumMismatchError(f"a micro-batch of {len(data)} bytes arrived damaged")
    numbers, arrays = read_fields(data[tags.CHECKSUM_BYTES :])
    step, round_index, token_bytes, alignment, target_count, padding = (
        numbers.get(tag, 0)
        for tag in (tags.STEP, tags.ROUND, tags.TOKEN_BYTES, tags.ALIGNMENT, tags.TARGET_COUNT, tags.PADDING)
    )
    length_bytes, mask_bytes, weight_bytes, image_bytes, tokens = (
        arrays.get(tag, _NONE) for tag in (tags.LENGTHS, tags.LOSS_MASK, tags.LOSS_WEIGHT, tags.IMAGES, tags.TOKENS)
    )
    where = f"step {step}, round {round_index}"
    largest = max(round_index, alignment, target_count, padding)
    # Sums of what the contract's types can hold do not wrap.
    if largest > MAX_INT32 or step > MAX_INT64 or token_bytes not in _TOKEN_TYPES or not alignment:
        raise ChecksumMismatchError(
            f"{where}: impossible token_bytes {token_bytes}, alignment {alignment}, target_count {target_count} or "
            f"padding {padding}"
        )
    if len(length_bytes) % _LENGTH_TYPE.itemsize:
        raise ChecksumMismatchError(f"{where}: {len(length_bytes)} bytes of lengths")
    lengths = np.frombuffer(length_bytes, dtype=_LENGTH_TYPE).astype(np.int64)
    if not lengths.all():
        raise ChecksumMismatchError(f"{where}: a sub-sequence without tokens")
    positions = int(footprints(lengths, alignment).sum()) + padding
    sizes = (len(tokens), len(mask_bytes), len(weight_bytes))
    if sizes != (positions * token_bytes, -(-positions // 8), positions * 4 if weight_bytes else 0):
        raise ChecksumMismatchError(
            f"{where}: {positions} positions but {sizes[0]} token bytes, {sizes[1]} mask bytes, {sizes[2]} weight bytes"
        )
    bits = np.frombuffer(mask_bytes, dtype=np.uint8)
    loss_mask = np.unpackbits(bits, count=positions, bitorder="little").view(np.bool_)
    loss_mask.flags.writeable = False
    return MicroBatch(
        step=step,
        round=round_index,
        sync_weights=bool(numbers.get(tags.SYNC_WEIGHTS, 0)),
        alignment=alignment,
        lengths=lengths,
        target_count=target_count,
        padding=padding,
        tokens=np.frombuffer(tokens, dtype=_TOKEN_TYPES[token_bytes]),
        loss_mask=loss_mask,
        loss_weight=np.frombuffer(weight_bytes, dtype=_WEIGHT_TYPE) if weight_bytes else None,
        images=decode_images(image_bytes, len(lengths), where) if tags.IMAGES in arrays else None,
    )


def _digest_of(content: memoryview) -> bytes:
    return xxhash.xxh3_64_intdigest(content).to_bytes(8, "little")
