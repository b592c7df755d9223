"""Rows longer than a longest sample, served as consecutive pieces (`long_rows = split`).

    row of 11 tokens, max_length 5 ──> [0, 5) [5, 10) and a last piece of one token, which is left out

Every piece is a sample of its own, in store order, and every token is in exactly one of them. A last piece of one
token is no sample: nothing stands before it that predicts it, so it is left out, and counted among the cut tokens.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dataserver.errors import InvalidSpecError
from dataserver.run_spec import LongRows
from dataserver.stores.schema import LossMask

# Pieces that are listed at a time, so that memory is bounded for rows of any length.
_CHUNK_PIECES = 1 << 20


def check_splittable(path: Path | str, loss_mask: LossMask, long_rows: LongRows) -> None:
    """Raise `InvalidSpecError` where `long_rows` asks to split rows that have a mask of their own."""
    if long_rows is LongRows.SPLIT and loss_mask is not LossMask.ALL:
        raise InvalidSpecError(
            f"long_rows = split with the store '{path}', whose rows have a loss mask: a piece could hold an answer "
            "without its question, or no target at all. Split rows only with loss_mask = all; else let long_rows be "
            "truncate, drop or refuse.",
            store=str(path),
        )


def piece_counts(lengths: NDArray[np.int64], max_length: int) -> NDArray[np.int64]:
    """Pieces served of rows with so many tokens, int64[n]; 1 for those that are not longer than `max_length`."""
    counts: NDArray[np.int64] = np.maximum(-(-lengths // max_length) - tail_tokens(lengths, max_length), 1)
    return counts


def tail_tokens(lengths: NDArray[np.int64], max_length: int) -> NDArray[np.int64]:
    """1 for rows whose last piece would be a single token, else 0; int64[n]."""
    tails: NDArray[np.int64] = ((lengths > max_length) & (lengths % max_length == 1)).astype(np.int64)
    return tails


def list_pieces(
    rows: NDArray[np.int64], lengths: NDArray[np.int64], max_length: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int32]]]:
    """Row number and first token of every piece of `rows`, in order, in chunks."""
    ends = np.cumsum(piece_counts(lengths, max_length))
    count = int(ends[-1]) if len(ends) else 0
    for begin in range(0, count, _CHUNK_PIECES):
        pieces = np.arange(begin, min(begin + _CHUNK_PIECES, count), dtype=np.int64)
        at = np.searchsorted(ends, pieces, side="right")
        before = np.where(at > 0, ends[at - 1], 0)
        yield rows[at], ((pieces - before) * max_length).astype(np.int32)
