"""The rules that every row must keep, checked vectorised over bounded pieces.

    record batch ──> pieces of about PIECE_TOKENS tokens ──> first fault, or the piece's index entries

Within a row the first rule that it breaks is named; over rows the lowest row. The wording of
the numbered messages in docs/formats.md is kept to the letter, so that people recognise them.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dataserver.stores.ragged import Ragged, ragged, type_refusal
from dataserver.stores.schema import ATTENTION_MASK, INPUT_IDS, LOSS_MASK
from dataserver.stores.tables import NO_TARGET

# Temporaries of a check take some 8 to 25 bytes a token: about 50 MiB at this size.
PIECE_TOKENS = 1 << 21

# Starts and lengths of these are held at a time, so that short rows are bounded too.
_PIECE_ROWS = 1 << 20

# Token ids are signed 32-bit with everyone downstream (torch labels, tokenizers, the contract).
MAX_TOKEN = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """The first broken rule: `row` counts from the beginning of the piece."""

    row: int
    column: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Some rows of a shard, as admission sees them. `loss_mask` is None where every token is a target."""

    input_ids: Ragged
    loss_mask: Ragged | None
    attention_mask: Ragged | None

    def __len__(self) -> int:
        return len(self.input_ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class PieceIndex:
    """What the index holds of each row of a piece, int32[n] each.

    `first_targets`: position of the first target at or after 1, or `NO_TARGET`.
    `targets`: number of targets at or after position 1.
    `max_token` stands in `max_token_row` for the first time; -1 and 0 where there is no token.
    """

    lengths: NDArray[np.int32]
    first_targets: NDArray[np.int32]
    targets: NDArray[np.int32]
    max_token: int
    max_token_row: int


def pieces_of(batch: pa.RecordBatch, *, shard: str, with_mask: bool) -> Iterator[Piece]:
    """Cut a record batch into pieces of whole rows; raises `StoreRefusedError` for a column's type."""
    for begin in range(0, batch.num_rows, _PIECE_ROWS):
        yield from _pieces_of_rows(batch.slice(begin, _PIECE_ROWS), shard, with_mask=with_mask)


def first_fault(piece: Piece) -> Fault | None:
    """The lowest row that breaks a rule, and the first rule that it breaks."""
    faults = list(_token_faults(piece.input_ids))
    if piece.loss_mask is not None:
        faults += _mask_faults(piece.input_ids, piece.loss_mask)
    if piece.attention_mask is not None:
        faults += _attention_faults(piece.input_ids, piece.attention_mask)
    return min(faults, key=lambda fault: fault.row, default=None)


def index_piece(piece: Piece) -> PieceIndex:
    """The index entries of a piece without fault."""
    lengths = piece.input_ids.lengths
    tokens, _ = piece.input_ids.flat()
    ends = np.cumsum(lengths)
    first_targets, targets = _targets(piece.loss_mask, ends - lengths, ends)
    max_token, max_token_row = -1, 0
    if len(tokens):
        max_token = int(tokens.max())
        max_token_row = _row_at(ends, int(tokens.argmax()))
    return PieceIndex(
        lengths=lengths.astype(np.int32),
        first_targets=first_targets.astype(np.int32),
        targets=targets.astype(np.int32),
        max_token=max_token,
        max_token_row=max_token_row,
    )


def _pieces_of_rows(batch: pa.RecordBatch, shard: str, *, with_mask: bool) -> Iterator[Piece]:
    names = [name for name in (INPUT_IDS, LOSS_MASK, ATTENTION_MASK) if name in batch.schema.names]
    columns = {name: ragged(batch.column(name), shard=shard, column=name) for name in names}
    input_ids = columns[INPUT_IDS]
    if input_ids.value_type == "bool":
        raise type_refusal(batch.schema.field(INPUT_IDS).type, shard=shard, column=INPUT_IDS)
    loss_mask = columns[LOSS_MASK] if with_mask else None
    attention_mask = columns.get(ATTENTION_MASK)
    longest = np.maximum.reduce([column.lengths for column in columns.values()])
    for begin, end in _cuts(longest):
        yield Piece(
            input_ids=input_ids.rows(begin, end),
            loss_mask=None if loss_mask is None else loss_mask.rows(begin, end),
            attention_mask=None if attention_mask is None else attention_mask.rows(begin, end),
        )


def _cuts(lengths: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Row ranges of at most PIECE_TOKENS values, or of a single row; rows without tokens count 1."""
    ends = np.cumsum(np.maximum(lengths, 1))
    begin = 0
    while begin < len(lengths):
        before = int(ends[begin - 1]) if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, before + PIECE_TOKENS, side="right")))
        yield begin, end
        begin = end


def _targets(
    mask: Ragged | None, begins: NDArray[np.int64], ends: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First target at or after position 1 (or NO_TARGET), and how many there are, int64[n] each."""
    if mask is None:
        counts = np.maximum(ends - begins - 1, 0)
        return np.where(counts > 0, 1, NO_TARGET), counts
    flat, _ = mask.flat()
    run_begins, run_ends = _runs_of_ones(flat)
    before = np.concatenate(([0], np.cumsum(run_ends - run_begins)))

    def ones_before(positions: NDArray[np.int64]) -> NDArray[np.int64]:
        run = np.searchsorted(run_begins, positions)
        beyond = np.maximum(run_ends[run - 1] - positions, 0) if len(run_ends) else 0
        return np.where(run > 0, before[run] - beyond, 0)

    candidates = np.minimum(begins + 1, ends)
    counts = ones_before(ends) - ones_before(candidates)
    first = np.full(len(begins), NO_TARGET, dtype=np.int64)
    found = counts > 0
    run = np.searchsorted(run_ends, candidates[found], side="right")
    first[found] = np.maximum(run_begins[run], candidates[found]) - begins[found]
    return first, counts


def _runs_of_ones(flat: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where runs of ones begin and end (excluded): far fewer numbers than there are ones."""
    edges = np.flatnonzero(flat[1:] != flat[:-1]) + 1
    first = np.zeros(1 if len(flat) and flat[0] else 0, dtype=np.int64)
    last = np.full(1 if len(flat) and flat[-1] else 0, len(flat), dtype=np.int64)
    bounds = np.concatenate((first, edges, last))
    return bounds[::2], bounds[1::2]


def _token_faults(column: Ragged) -> Iterator[Fault]:
    yield from _null_row(column, INPUT_IDS, "Row {row}: input_ids is null. Every row needs its tokens; [] is legal.")
    too_long = column.lengths > MAX_TOKEN
    yield from _at_first_row(too_long, INPUT_IDS, f"Row {{row}}: input_ids has more than {MAX_TOKEN} tokens.")
    flat, nulls = column.flat()
    ends = np.cumsum(column.lengths)
    if nulls is not None:
        yield from _at_first_value(nulls, ends, INPUT_IDS, lambda _: "Row {row}: input_ids holds a null.")
    if flat.dtype.kind == "f":
        broken = flat != np.floor(flat)
        yield from _at_first_value(
            broken, ends, INPUT_IDS, lambda at: f"Row {{row}}: input_ids holds {flat[at]}, which is not a whole number."
        )
    if len(flat) == 0 or _are_tokens(flat):
        return
    yield from _at_first_value(
        flat < 0, ends, INPUT_IDS, lambda at: f"Row {{row}}: input_ids holds {flat[at]}, a negative token id."
    )
    yield from _at_first_value(
        flat > MAX_TOKEN,
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
    yield from _null_row(mask, LOSS_MASK, "Row {row}: loss_mask is null. Store the full-sequence mask.")
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
    yield from _null_row(mask, ATTENTION_MASK, text)
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


def _values_not(column: Ragged, name: str, allowed: tuple[int, ...], text: str) -> Iterator[Fault]:
    """A fault at the first value that is null or not among `allowed`. NaN equals nothing."""
    flat, nulls = column.flat()
    broken = np.logical_and.reduce([flat != value for value in allowed]) if _may_differ(flat, allowed) else None
    if nulls is not None:
        broken = nulls if broken is None else broken | nulls
    if broken is not None:
        yield from _at_first_value(broken, np.cumsum(column.lengths), name, lambda _: text)


def _may_differ(flat: NDArray[Any], allowed: tuple[int, ...]) -> bool:
    """False only if all integers lie within `allowed`, a run of integers: passes without a temporary."""
    if flat.dtype.kind not in "iu" or len(flat) == 0:
        return len(flat) > 0
    return bool(_as_unsigned(flat).max() > allowed[-1] or (allowed[0] > 0 and flat.min() < allowed[0]))


def _as_unsigned(flat: NDArray[Any]) -> NDArray[Any]:
    """The same bytes: what is negative becomes larger than any value that is allowed."""
    return flat.view(f"u{flat.itemsize}")


def _null_row(column: Ragged, name: str, text: str) -> Iterator[Fault]:
    if column.null_rows is not None:
        yield from _at_first_row(column.null_rows, name, text)


def _at_first_row(broken: NDArray[np.bool_], column: str, text: str) -> Iterator[Fault]:
    if broken.any():
        yield Fault(row=int(broken.argmax()), column=column, text=text)


def _at_first_value(
    broken: NDArray[np.bool_], ends: NDArray[np.int64], column: str, text: Callable[[int], str]
) -> Iterator[Fault]:
    if broken.any():
        at = int(broken.argmax())
        yield Fault(row=_row_at(ends, at), column=column, text=text(at))


def _row_at(ends: NDArray[np.int64], value: int) -> int:
    """The row in which the flat position `value` lies, by the rows' ends."""
    return int(np.searchsorted(ends, value, side="right"))
