"""The digest of a plan: two servers that agree on it send the same micro-batches to every rank.

BLAKE2b of 16 bytes over these parts in turn; all integers little-endian:

    int64    planner version, step, ranks R, capacity, alignment, pad_to, last (0 or 1), target count
    int64    byte length of begin, then begin as canonical JSON (UTF-8); the same for end
    int64    number of samples n
    int32[n] source of each sample       int64[n] row of each sample       int64[n] length of each sample
    int64    number of rounds J
    int64[J * R] samples in each bin, round by round, rank by rank
    int64[n] indices of the samples, bin by bin in that order
"""

import hashlib

import numpy as np
from numpy.typing import NDArray

from dataserver.cursor import Cursor
from dataserver.packing.rounds import Rounds
from dataserver.planning.fingerprint import PLANNER_VERSION
from dataserver.run_spec import BatchSpec
from dataserver.sampling.order import Samples


def plan_digest(
    *,
    begin: Cursor,
    end: Cursor,
    samples: Samples,
    lengths: NDArray[np.int64],
    rounds: Rounds,
    target_count: int,
    batch: BatchSpec,
    last: bool,
) -> str:
    """32 hex digits over everything that reaches a rank."""
    bins = [members for group in rounds for members in group]
    ranks = len(rounds[0])
    shape = (batch.micro_batch_tokens, batch.alignment, batch.pad_to)
    digest = hashlib.blake2b(digest_size=16, person=b"ds plan")
    for part in (
        _integers(PLANNER_VERSION, end.step, ranks, *shape, int(last), target_count),
        _text(begin.to_json()),
        _text(end.to_json()),
        _integers(len(samples)),
        samples.source.astype("<i4").tobytes(),
        samples.row.astype("<i8").tobytes(),
        lengths.astype("<i8").tobytes(),
        _integers(len(rounds)),
        _integers(*(len(members) for members in bins)),
        np.concatenate(bins).astype("<i8").tobytes(),
    ):
        digest.update(part)
    return digest.hexdigest()


def _integers(*values: int) -> bytes:
    return np.array(values, dtype="<i8").tobytes()


def _text(text: str) -> bytes:
    data = text.encode()
    return _integers(len(data)) + data
