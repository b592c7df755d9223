"""What the index holds of each row: length, first target, number of targets."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dataserver.stores.pieces import Piece
from dataserver.stores.ragged import Ragged, row_at
from dataserver.stores.tables import NO_FIRST_TARGET


@dataclass(frozen=True, slots=True, kw_only=True)
class PieceIndex:
    """What the index holds of each row of a piece, int32[n] each.

    `first_targets`: position of the first target at or after 1, or `NO_FIRST_TARGET`.
    `targets`: number of targets at or after position 1.
    `max_token` stands in `max_token_row` for the first time; -1 and 0 where there is no token.
    """

    lengths: NDArray[np.int32]
    first_targets: NDArray[np.int32]
    targets: NDArray[np.int32]
    max_token: int
    max_token_row: int


def index_piece(piece: Piece) -> PieceIndex:
    """The index entries of a piece without fault."""
    lengths = piece.input_ids.lengths
    tokens, _ = piece.input_ids.flat()
    ends = np.cumsum(lengths)
    first_targets, targets = _targets(piece.loss_mask, ends - lengths, ends)
    max_token, max_token_row = -1, 0
    if len(tokens):
        highest = int(tokens.argmax())
        max_token, max_token_row = int(tokens[highest]), row_at(ends, highest)
    return PieceIndex(
        lengths=lengths.astype(np.int32),
        first_targets=first_targets.astype(np.int32),
        targets=targets.astype(np.int32),
        max_token=max_token,
        max_token_row=max_token_row,
    )


def _targets(
    mask: Ragged | None, begins: NDArray[np.int64], ends: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First target at or after position 1 (or NO_FIRST_TARGET), and how many there are, int64[n] each."""
    if mask is None:
        counts = np.maximum(ends - begins - 1, 0)
        return np.where(counts > 0, 1, NO_FIRST_TARGET), counts
    flat, _ = mask.flat()
    run_begins, run_ends = _runs_of_ones(flat)
    before = np.concatenate(([0], np.cumsum(run_ends - run_begins)))

    def ones_before(positions: NDArray[np.int64]) -> NDArray[np.int64]:
        run = np.searchsorted(run_begins, positions)
        beyond = np.maximum(run_ends[run - 1] - positions, 0) if len(run_ends) else 0
        return np.where(run > 0, before[run] - beyond, 0)

    candidates = np.minimum(begins + 1, ends)
    counts = ones_before(ends) - ones_before(candidates)
    first = np.full(len(begins), NO_FIRST_TARGET, dtype=np.int64)
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
