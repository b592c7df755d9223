"""Where the micro-batches of a message lie, and all of them that is neither mask, weights, images nor tokens.

The loops of `micro_batch_writer`, as machine code. `common`: int64[5], the columns of `COMMON`. `frames`:
int64[k, 10], a row a micro-batch, the columns of `FRAME`. `row_ends`, `position_ends`: int64[k], where each ends among
the rows and the positions of all. `begins`, `lengths`: int64[n], of the rows. `mask`: uint8[m].
"""

from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dataserver.compiled import compiled
from dataserver.wire.micro_batch_tags import (
    ALIGNMENT,
    CHECKSUM,
    CHECKSUM_BYTES,
    FILL,
    IMAGES,
    LENGTHS,
    LOSS_MASK,
    LOSS_WEIGHT,
    MICRO_BATCH,
    PADDING,
    ROUND,
    STEP,
    SYNC_WEIGHTS,
    TARGET_COUNT,
    TOKEN_BYTES,
    TOKENS,
)

Counts: TypeAlias = NDArray[np.int64]
Bytes: TypeAlias = NDArray[np.uint8]

# Columns of `common`: what all micro-batches of a message have in common.
COMMON: Final = 5
COMMON_STEP, FIRST_ROUND, COMMON_SYNC_WEIGHTS, WIDTH, COMMON_ALIGNMENT = range(COMMON)

# Columns of `frames`: where a micro-batch begins and ends in the message, its own size, where its large fields begin,
# and what was counted.
FRAME: Final = 10
BEGIN, END, SIZE, MASK_AT, WEIGHT_AT, IMAGES_AT, TOKENS_AT, TARGETS, PADDED, FILLED = range(FRAME)

# Machine code has the tags in it as they were when this file changed last: whoever changes one changes something here.

# A tag, a length and at least one byte: what a field takes that is not left out.
_LEAST_FILL: Final = 3


@compiled
def varint_size(value: int) -> int:
    """Bytes of a number that is not negative."""
    size = 1
    while value > 0x7F:
        value >>= 7
        size += 1
    return size


@compiled
def number_size(value: int) -> int:
    """Bytes of a number's field, which is left out where it is 0."""
    return 1 + varint_size(value) if value else 0


@compiled
def bytes_size(size: int) -> int:
    """Bytes of a field of `size` bytes, which is left out where there are none."""
    return 1 + varint_size(size) + size if size else 0


@compiled
def put_varint(out: Bytes, at: int, value: int) -> int:
    """Write a number; return what follows it."""
    while value > 0x7F:
        out[at] = value & 0x7F | 0x80
        value >>= 7
        at += 1
    out[at] = value
    return at + 1


@compiled
def put_number(out: Bytes, at: int, tag: int, value: int) -> int:
    """Write a number's field; return what follows it."""
    if not value:
        return at
    out[at] = tag
    return put_varint(out, at + 1, value)


@compiled
def put_header(out: Bytes, at: int, tag: int, size: int) -> int:
    """Write what stands before `size` bytes; return where they begin."""
    out[at] = tag
    return put_varint(out, at + 1, size)


@compiled
def put_numbers(out: Bytes, at: int, common: Counts, round_index: int, frame: Counts) -> int:
    """Write the fields between checksum and lengths; return what follows them."""
    at = put_number(out, at, STEP, common[COMMON_STEP])
    at = put_number(out, at, ROUND, round_index)
    at = put_number(out, at, SYNC_WEIGHTS, common[COMMON_SYNC_WEIGHTS])
    at = put_number(out, at, TOKEN_BYTES, common[WIDTH])
    at = put_number(out, at, ALIGNMENT, common[COMMON_ALIGNMENT])
    at = put_number(out, at, TARGET_COUNT, frame[TARGETS])
    return put_number(out, at, PADDING, frame[PADDED])


@compiled
def put_lengths(out: Bytes, at: int, lengths: Counts) -> int:
    """Write the lengths, which are left out where there are none; return what follows them."""
    if not len(lengths):
        return at
    at = put_header(out, at, LENGTHS, 4 * len(lengths))
    for length in lengths:
        for byte in range(4):
            out[at + byte] = length >> 8 * byte & 0xFF
        at += 4
    return at


@compiled
def lay_out(  # noqa: PLR0917
    common: Counts,
    row_ends: Counts,
    position_ends: Counts,
    begins: Counts,
    lengths: Counts,
    mask: Bytes,
    weighted: bool,
    image_sizes: Counts,
    frames: Counts,
) -> None:
    """Fill `frames` but for the places of large fields.

    `image_sizes`: int64[k], bytes of the images; less than 0: not an image round.
    """
    at, row, position = 0, 0, 0
    for i in range(len(frames)):
        targets = 0
        # Summed over a slice, so that the compiler vectorises it.
        for bit in mask[position : position_ends[i]]:
            targets += bit != 0
        # The first token of a sub-sequence has no predecessor, and is nobody's target.
        for j in range(row, row_ends[i]):
            targets -= mask[begins[j]] != 0
        behind = position
        if row_ends[i] > row:
            last, alignment = row_ends[i] - 1, common[COMMON_ALIGNMENT]
            behind = begins[last] + (lengths[last] + alignment - 1) // alignment * alignment
        frames[i, BEGIN], frames[i, TARGETS], frames[i, PADDED] = at, targets, position_ends[i] - behind
        positions = position_ends[i] - position
        before = CHECKSUM_BYTES + number_size(common[COMMON_STEP]) + number_size(common[FIRST_ROUND] + i)
        before += number_size(common[COMMON_SYNC_WEIGHTS]) + number_size(common[WIDTH])
        before += number_size(common[COMMON_ALIGNMENT]) + number_size(targets) + number_size(frames[i, PADDED])
        before += bytes_size(4 * (row_ends[i] - row)) + bytes_size((positions + 7) // 8)
        if weighted:
            before += bytes_size(4 * positions)
        if image_sizes[i] >= 0:
            before += 1 + varint_size(image_sizes[i]) + image_sizes[i]
        width = common[WIDTH]
        frames[i, FILLED] = filling(before + bytes_size(positions * width), width)
        frames[i, SIZE] = before + frames[i, FILLED] + bytes_size(positions * width)
        at += 1 + varint_size(frames[i, SIZE]) + frames[i, SIZE]
        frames[i, END] = at
        row, position = row_ends[i], position_ends[i]


@compiled
def filling(size: int, width: int) -> int:
    """Bytes of the `fill` with which a micro-batch of `size` bytes, its tag and length, is a multiple of `width`."""
    filled = 0
    while (1 + varint_size(size + filled) + size + filled) % width:
        filled = max(_LEAST_FILL, filled + 1)
    return filled


@compiled
def write_heads(  # noqa: PLR0917
    out: Bytes,
    common: Counts,
    row_ends: Counts,
    position_ends: Counts,
    lengths: Counts,
    weighted: bool,
    image_sizes: Counts,
    frames: Counts,
) -> None:
    """Write all that `frames` say but the checksums and the large fields, and fill in where these begin."""
    row, position = 0, 0
    for i in range(len(frames)):
        positions = position_ends[i] - position
        at = put_header(out, frames[i, BEGIN], MICRO_BATCH, frames[i, SIZE])
        out[at] = CHECKSUM
        at = put_numbers(out, at + CHECKSUM_BYTES, common, common[FIRST_ROUND] + i, frames[i])
        at = put_lengths(out, at, lengths[row : row_ends[i]])
        if positions:
            at = put_header(out, at, LOSS_MASK, (positions + 7) // 8)
        frames[i, MASK_AT] = at
        at += (positions + 7) // 8
        if weighted and positions:
            at = put_header(out, at, LOSS_WEIGHT, 4 * positions)
        frames[i, WEIGHT_AT] = at
        if weighted:
            at += 4 * positions
        if image_sizes[i] >= 0:
            at = put_header(out, at, IMAGES, image_sizes[i])
        frames[i, IMAGES_AT] = at
        at += max(0, image_sizes[i])
        if frames[i, FILLED]:
            zeros = frames[i, FILLED] - 2
            at = put_header(out, at, FILL, zeros)
            out[at : at + zeros] = 0
            at += zeros
        if positions:
            at = put_header(out, at, TOKENS, positions * common[WIDTH])
        frames[i, TOKENS_AT] = at
        row, position = row_ends[i], position_ends[i]
