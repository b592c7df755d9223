"""Rows of a mapped store into micro-batches, on one core, beside numpy's plain copy of as many bytes.

    copy       `np.copyto` of as many bytes from the mapped file, end to end: memory bandwidth
    rows       the same rows in the same order, joined from slices that were cut beforehand: nothing but C's copying
    numpy      the same rows, assigned one by one into an array by numpy
    gather     row numbers to joined tokens and masks, as the server does it
    message    the whole micro-batch: gather, mask as bits, checksum, protobuf's bytes

All run over the same micro-batches, interleaved, in a process that is set up as the server is; what counts is CPU time.
Rows in shuffled order lie all over the store, so that each begins with cache misses; `copy` has none, and `rows` has
the same ones.
"""

import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.report import Spread, report
from dataserver.batching.encode import encode_planned
from dataserver.batching.table import SourceTable
from dataserver.planning.planner import Planner
from dataserver.run_spec import BatchSpec, LongRows, Shuffle
from dataserver.sampling.union import plain_union
from dataserver.server.memory import settle
from dataserver.stores import open_store
from dataserver.testing import write_store

TOKENS, REPEATS, SEED = 40_000_000, 7, 3
CAPACITIES = (2**15, 2**19)


def main():
    settle()
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        for shape in ("512", "chat"):
            path = write_store(Path(directory) / shape, lengths=lengths_of(shape).tolist(), vocab_size=150_000)
            with open_store(path, index_dir=Path(directory) / "index") as store:
                for shuffle in (Shuffle.FULL, Shuffle.SEQUENTIAL):
                    rows += [measure(shape, store, path, shuffle, capacity) for capacity in CAPACITIES]
    notes = ["million tokens a CPU second, of 4 bytes and a mask byte each, median (range)"]
    report("gather", "Mapped rows into micro-batches", rows, notes)


def lengths_of(shape):
    if shape == "512":
        return np.full(TOKENS // 512, 512)
    drawn = np.random.default_rng(SEED).lognormal(np.log(330), 1.0, TOKENS // 520)
    return np.clip(drawn, 8, 4096).astype(np.int64)


def measure(shape, store, path, shuffle, capacity):
    table = SourceTable([store.view(4096, LongRows.TRUNCATE)], 4)
    batch = BatchSpec(step_tokens=2**22, micro_batch_tokens=capacity)
    planner = Planner.of_order(plain_union(table.sizes, seed=SEED, shuffle=shuffle), table, "bench")
    plan = planner.plan(planner.initial_cursor(), batch, 1)
    whole = np.memmap(next(path.rglob("*.arrow")), np.uint8, mode="r")
    ways = {
        "copy": lambda: copy(plan, whole),
        "rows": join_of_cut(plan, table),
        "numpy": assign_rows(plan, table),
        "gather": lambda: gather(plan, table),
        "message": lambda: encode(plan, table),
    }
    for way in ways.values():
        way()
    seconds = {name: [] for name in ways}
    for _ in range(REPEATS):
        for name, way in ways.items():
            began = time.process_time()
            way()
            seconds[name].append(time.process_time() - began)
    rates = {name: Spread.of([plan.token_count / taken / 1e6 for taken in times]) for name, times in seconds.items()}
    return {
        "lengths": shape,
        "order": shuffle.value,
        "micro-batch": capacity,
        **rates,
        "gather / copy": rates["gather"].median / rates["copy"].median,
        "gather / numpy": rates["gather"].median / rates["numpy"].median,
        "gather / rows": rates["gather"].median / rates["rows"].median,
        "message us": Spread.of([taken / len(plan.rounds) * 1e6 for taken in seconds["message"]]).median,
    }


def copy(plan, whole):
    """As many bytes as the micro-batches have, from one end of the file to the other, into new memory each."""
    at = 0
    for (indices,) in plan.rounds:
        size = int(plan.lengths[indices].sum()) * 5
        at = at if at + size <= len(whole) else 0
        np.copyto(np.empty(size, np.uint8), whole[at : at + size])
        at += size


def join_of_cut(plan, table):
    cut = [table.read(plan.samples.take(indices)) for (indices,) in plan.rounds]

    def join():
        for slices in cut:
            b"".join(slices.tokens)
            b"".join(slices.loss_mask)

    return join


def assign_rows(plan, table):
    cut = [table.read(plan.samples.take(indices)) for (indices,) in plan.rounds]
    arrays = [
        [np.frombuffer(piece, np.uint8) for piece in pieces]
        for slices in cut
        for pieces in (slices.tokens, slices.loss_mask)
    ]

    def assign():
        for pieces in arrays:
            out = np.empty(sum(map(len, pieces)), np.uint8)
            at = 0
            for piece in pieces:
                out[at : at + len(piece)] = piece
                at += len(piece)

    return assign


def gather(plan, table):
    for (indices,) in plan.rounds:
        slices = table.read(plan.samples.take(indices))
        b"".join(slices.tokens)
        b"".join(slices.loss_mask)


def encode(plan, table):
    for index in range(len(plan.rounds)):
        encode_planned(plan, table, round_index=index, dp_rank=0, alignment=1, pad_to=0, sync_weights=False)


if __name__ == "__main__":
    main()
