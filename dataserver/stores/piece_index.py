"""What the index holds of each row: length, first target, number of targets; and what that sums up to."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dataserver.stores.image_rules import ImageColumns
from dataserver.stores.manifest import LengthBucket
from dataserver.stores.pieces import Piece
from dataserver.stores.ragged import Ragged, row_at
from dataserver.stores.tables import NO_FIRST_TARGET
from dataserver.stores.target_weights import target_weights

# Bucket 0 holds rows of 0 tokens, bucket k rows of 2^(k-1) up to 2^k - 1.
_BUCKETS = 33
_BUCKET_BEGINS = np.array([0] + [1 << k for k in range(_BUCKETS - 1)], dtype=np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class PieceIndex:
    """What the index holds of each row of a piece, int32[n] each.

    `first_targets`: position of the first target at or after 1, or `NO_FIRST_TARGET`.
    `targets`: number of targets at or after position 1.
    `weights`: float64[n], the sum of their weights as float32; None where the store has none.
    `images`: int64[i, 5], an `image_table.ImageTable` for the rows of the piece, whose places count elements of the
    columns' values; None where the store has no such columns.
    `max_token` stands in `max_token_row` for the first time; -1 and 0 where there is no token.
    """

    lengths: NDArray[np.int32]
    first_targets: NDArray[np.int32]
    targets: NDArray[np.int32]
    max_token: int
    max_token_row: int
    weights: NDArray[np.float64] | None
    images: NDArray[np.int64] | None


class RunningFigures:
    """Rows, tokens, extremes and the histogram of lengths of the pieces added so far."""

    def __init__(self) -> None:
        self.rows = 0
        self.tokens = 0
        self.longest_row = 0
        self.max_token = -1
        self.max_token_row = 0
        self._histogram: NDArray[np.int64] = np.zeros(_BUCKETS, dtype=np.int64)

    def add(self, piece: PieceIndex) -> None:
        """Count the rows of one piece, which follow those counted before."""
        if len(piece.lengths) == 0:
            return
        self.tokens += int(piece.lengths.sum(dtype=np.int64))
        self.longest_row = max(self.longest_row, int(piece.lengths.max()))
        if piece.max_token > self.max_token:
            self.max_token, self.max_token_row = piece.max_token, self.rows + piece.max_token_row
        buckets = np.searchsorted(_BUCKET_BEGINS, piece.lengths, side="right") - 1
        self._histogram += np.bincount(buckets, minlength=_BUCKETS)
        self.rows += len(piece.lengths)

    def merge(self, other: "RunningFigures") -> None:
        """Count the rows of other pieces, which follow those counted before."""
        if other.max_token > self.max_token:
            self.max_token, self.max_token_row = other.max_token, self.rows + other.max_token_row
        self.rows += other.rows
        self.tokens += other.tokens
        self.longest_row = max(self.longest_row, other.longest_row)
        self._histogram += other._histogram

    def state(self) -> dict[str, Any]:
        """The figures as JSON; `of_state` reads it."""
        names = ("rows", "tokens", "longest_row", "max_token", "max_token_row")
        return {name: getattr(self, name) for name in names} | {"histogram": self._histogram.tolist()}

    @classmethod
    def of_state(cls, state: Mapping[str, Any]) -> Self:
        """What `state` returned; raises `KeyError` for anything else."""
        found = cls()
        for name in ("rows", "tokens", "longest_row", "max_token", "max_token_row"):
            setattr(found, name, int(state[name]))
        found._histogram = np.array(state["histogram"], dtype=np.int64)
        return found

    def histogram(self) -> tuple[LengthBucket, ...]:
        """The buckets from the first to the last that has rows."""
        filled = np.flatnonzero(self._histogram)
        if len(filled) == 0:
            return ()
        buckets = range(int(filled[0]), int(filled[-1]) + 1)
        return tuple(
            LengthBucket(begin=int(_BUCKET_BEGINS[k]), end=1 << k, rows=int(self._histogram[k])) for k in buckets
        )


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
        weights=None if piece.loss_weight is None else _weights(piece.loss_weight, piece.loss_mask, ends),
        images=None if piece.images is None else _images(piece.images),
    )


def _weights(weights: Ragged, mask: Ragged | None, ends: NDArray[np.int64]) -> NDArray[np.float64]:
    found = np.zeros(len(ends), dtype=np.float64)
    filled = np.flatnonzero(weights.lengths)
    if len(filled):
        flat, _ = weights.flat()
        begins = (ends - weights.lengths)[filled]
        found[filled] = target_weights(flat.astype(np.float32), None if mask is None else mask.flat()[0], begins)
    return found


def _images(images: ImageColumns) -> NDArray[np.int64]:
    rows = images.rows_with_images
    counts = images.image_grid_thw.values.lengths // 3
    grids, pixels = images.image_grid_thw.values.starts, images.pixel_values.values.starts
    return np.stack([rows, counts[rows], images.patches()[rows], grids[rows], pixels[rows]], axis=1)


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
