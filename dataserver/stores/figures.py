"""Figures of a store, summed up while it is scanned."""

import numpy as np
from numpy.typing import NDArray

from dataserver.stores.manifest import LengthBucket
from dataserver.stores.piece_index import PieceIndex

# Bucket 0 holds rows of 0 tokens, bucket k rows of 2^(k-1) up to 2^k - 1.
_BUCKETS = 33
_BUCKET_BEGINS = np.array([0] + [1 << k for k in range(_BUCKETS - 1)], dtype=np.int64)


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

    def histogram(self) -> tuple[LengthBucket, ...]:
        """The buckets from the first to the last that has rows."""
        filled = np.flatnonzero(self._histogram)
        if len(filled) == 0:
            return ()
        buckets = range(int(filled[0]), int(filled[-1]) + 1)
        return tuple(
            LengthBucket(begin=int(_BUCKET_BEGINS[k]), end=1 << k, rows=int(self._histogram[k])) for k in buckets
        )
