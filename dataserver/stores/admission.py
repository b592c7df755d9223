"""The rules that every row must keep, checked vectorised over bounded pieces.

    record batch ──> pieces of about PIECE_TOKENS tokens ──> first fault, if any

Within a row the first rule that it breaks is named; over rows the lowest row. The wording of
the numbered messages in docs/formats.md is kept to the letter, so that people recognise them.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dataserver.stores.faults import Fault, at_first_row, at_first_value, largest_float32, null_row
from dataserver.stores.image_rules import image_faults
from dataserver.stores.pieces import Piece
from dataserver.stores.ragged import Ragged
from dataserver.stores.schema import ATTENTION_MASK, INPUT_IDS, LOSS_MASK, LOSS_WEIGHT

# Token ids are signed 32-bit with everyone downstream (torch labels, tokenizers, the contract).
MAX_TOKEN = 2**31 - 1


def first_fault(piece: Piece, patch_values: int = 0) -> Fault | None:
    """The lowest row that breaks a rule, and the first rule that it breaks.

    `patch_values`: values of a patch in the rows before the piece; 0 where none had images.
    """
    faults = list(_token_faults(piece.input_ids))
    if piece.loss_mask is not None:
        faults += _mask_faults(piece.input_ids, piece.loss_mask)
    if piece.attention_mask is not None:
        faults += _attention_faults(piece.input_ids, piece.attention_mask)
    if piece.loss_weight is not None:
        faults += _weight_faults(piece.input_ids, piece.loss_weight)
    if piece.images is not None:
        faults += image_faults(piece.images, patch_values)
    return min(faults, key=lambda fault: fault.row, default=None)


def _token_faults(column: Ragged) -> Iterator[Fault]:
    yield from null_row(column, INPUT_IDS, "Row {row}: input_ids is null. Every row needs its tokens; [] is legal.")
    too_long = column.lengths > MAX_TOKEN
    yield from at_first_row(too_long, INPUT_IDS, f"Row {{row}}: input_ids has more than {MAX_TOKEN} tokens.")
    flat, nulls = column.flat()
    ends = np.cumsum(column.lengths)
    if nulls is not None:
        yield from at_first_value(nulls, ends, INPUT_IDS, lambda _: "Row {row}: input_ids holds a null.")
    if flat.dtype.kind == "f":
        broken = flat != np.floor(flat)
        yield from at_first_value(
            broken, ends, INPUT_IDS, lambda at: f"Row {{row}}: input_ids holds {flat[at]}, which is not a whole number."
        )
    if len(flat) == 0 or _are_tokens(flat):
        return
    yield from at_first_value(
        flat < 0, ends, INPUT_IDS, lambda at: f"Row {{row}}: input_ids holds {flat[at]}, a negative token id."
    )
    # One above, in a type of its own: a narrow float knows neither MAX_TOKEN nor that infinity is above it.
    above = flat >= np.float64(MAX_TOKEN + 1) if flat.dtype.kind == "f" else flat > MAX_TOKEN
    yield from at_first_value(
        above,
        ends,
        INPUT_IDS,
        lambda at: f"Row {{row}}: input_ids holds {flat[at]}, above {MAX_TOKEN}, the highest token id there can be.",
    )


def _are_tokens(flat: NDArray[Any]) -> bool:
    """Whether all integers are legal token ids, in one pass where the type is wide."""
    if flat.dtype.kind == "i" and flat.itemsize < 4:
        return bool(flat.min() >= 0)
    return flat.dtype.kind in "iu" and bool(_as_unsigned(flat).max() <= MAX_TOKEN)


def _mask_faults(input_ids: Ragged, mask: Ragged) -> Iterator[Fault]:
    yield from null_row(mask, LOSS_MASK, "Row {row}: loss_mask is null. Store the full-sequence mask.")
    differing = np.flatnonzero(mask.lengths != input_ids.lengths)
    if len(differing):
        row = int(differing[0])
        text = (
            f"Row {{row}}: loss_mask length ({mask.lengths[row]}) must equal len(input_ids) "
            f"({input_ids.lengths[row]}). Window-form masks are not supported; store the full-sequence mask."
        )
        yield Fault(row=row, column=LOSS_MASK, text=text)
    yield from _values_not(mask, LOSS_MASK, (0, 1), "Row {row}: loss_mask must contain only 0s and 1s.")


def _attention_faults(input_ids: Ragged, mask: Ragged) -> Iterator[Fault]:
    text = "Row {row}: attention_mask is null. Leave the column out, or store all ones."
    yield from null_row(mask, ATTENTION_MASK, text)
    differing = np.flatnonzero(mask.lengths != input_ids.lengths)
    if len(differing):
        row = int(differing[0])
        text = (
            f"Row {{row}}: attention_mask length ({mask.lengths[row]}) must equal len(input_ids) "
            f"({input_ids.lengths[row]})."
        )
        yield Fault(row=row, column=ATTENTION_MASK, text=text)
    text = (
        "Row {row}: attention_mask contains 0s. Pretokenized rows must be stored unpadded "
        "(padding is applied at collation time)."
    )
    yield from _values_not(mask, ATTENTION_MASK, (1,), text)


def _weight_faults(input_ids: Ragged, weights: Ragged) -> Iterator[Fault]:
    yield from null_row(weights, LOSS_WEIGHT, "Row {row}: loss_weight is null. Store a weight for every token.")
    differing = weights.lengths != input_ids.lengths
    yield from at_first_row(
        differing,
        LOSS_WEIGHT,
        lambda row: (
            f"Row {{row}}: loss_weight length ({weights.lengths[row]}) must equal len(input_ids) "
            f"({input_ids.lengths[row]})."
        ),
    )
    flat, nulls = weights.flat()
    # Written so that NaN, which compares with nothing, is broken too.
    broken = ~((flat >= 0) & (flat <= largest_float32(flat.dtype)))
    if nulls is not None:
        yield from at_first_value(
            nulls, np.cumsum(weights.lengths), LOSS_WEIGHT, lambda _: "Row {row}: loss_weight holds a null."
        )
        broken &= ~nulls
    yield from at_first_value(
        broken,
        np.cumsum(weights.lengths),
        LOSS_WEIGHT,
        lambda at: f"Row {{row}}: loss_weight holds {flat[at]}; weights are finite float32 numbers from 0 on.",
    )


def _values_not(column: Ragged, name: str, allowed: tuple[int, ...], text: str) -> Iterator[Fault]:
    """A fault at the first value that is null or not among `allowed`. NaN equals nothing."""
    flat, nulls = column.flat()
    broken = np.logical_and.reduce([flat != value for value in allowed]) if _may_differ(flat, allowed) else None
    if nulls is not None:
        broken = nulls if broken is None else broken | nulls
    if broken is not None:
        yield from at_first_value(broken, np.cumsum(column.lengths), name, lambda _: text)


def _may_differ(flat: NDArray[Any], allowed: tuple[int, ...]) -> bool:
    """False only if all integers lie within `allowed`, a run of integers: passes without a temporary."""
    if flat.dtype.kind not in "iu" or len(flat) == 0:
        return len(flat) > 0
    return bool(_as_unsigned(flat).max() > allowed[-1] or (allowed[0] > 0 and flat.min() < allowed[0]))


def _as_unsigned(flat: NDArray[Any]) -> NDArray[Any]:
    """The same bytes: what is negative becomes larger than any value that is allowed."""
    return flat.view(f"u{flat.itemsize}")
