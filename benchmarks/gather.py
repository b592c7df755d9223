"""Rows of a mapped store into micro-batches, on one core, beside numpy's plain copy of the same bytes.

    copy       `np.copyto` of as many bytes from a mapped file, end to end: memory bandwidth
    numpy      the same rows in the same order, by `np.take` where all are of one length, else `np.concatenate`
    gather     row numbers to tokens and masks in their places, as the server does it
    message    the whole micro-batch: gather, mask as bits, checksum, protobuf's bytes

All run over the same micro-batches, as many at a time as the server sends together, interleaved, in a process set up
as the server is; what counts is CPU time. They are of one step that is larger than the processor's caches, so that
none finds there what another one read; and each lets go of a micro-batch before it makes room for the next.
Rows in shuffled order lie all over the store, so that each begins with cache misses; `copy` has none, and `numpy` has
the same ones.
"""

import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.report import Spread, report
from dataserver.batching.encode import encode_planned
from dataserver.batching.table import SourceTable
from dataserver.client.client import DEFAULT_CREDITS
from dataserver.planning.planner import Planner
from dataserver.run_spec import BatchSpec, LongRows, Shuffle
from dataserver.sampling.order import Samples
from dataserver.sampling.union import plain_union
from dataserver.server.memory import settle
from dataserver.stores import open_store
from dataserver.stores.destination import Destination
from dataserver.streaming.encodings import TOGETHER_BYTES
from dataserver.streaming.message_size import largest_message_bytes
from dataserver.testing import write_store

TOKENS, REPEATS, SEED = 40_000_000, 7, 3
CAPACITIES = (2**15, 2**19)
STEP_TOKENS = 2**24


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
    batch = BatchSpec(step_tokens=STEP_TOKENS, micro_batch_tokens=capacity)
    planner = Planner.of_order(plain_union(table.sizes, seed=SEED, shuffle=shuffle), table, "bench")
    plan = planner.plan(planner.initial_cursor(), batch, 1)
    columns = mapped_columns(table, path)
    together = min(DEFAULT_CREDITS // 2, max(1, TOGETHER_BYTES // largest_message_bytes(batch, table.token_bytes)))
    rounds = [range(first, min(first + together, len(plan.rounds))) for first in range(0, len(plan.rounds), together)]
    groups = [np.concatenate([plan.rounds[index][0] for index in each]) for each in rounds]
    ways = {
        "copy": lambda: copy(plan, groups, columns),
        "numpy": by_numpy(plan, groups, table, columns),
        "gather": lambda: gather(plan, groups, table),
        "message": lambda: encode(plan, rounds, table),
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
        "message us": Spread.of([taken / len(plan.rounds) * 1e6 for taken in seconds["message"]]).median,
    }


def mapped_columns(table, path):
    """Tokens and masks of all rows end to end, each mapped from a file of its own."""
    rows = Samples(source=np.zeros(table.sizes[0], np.int32), row=np.arange(table.sizes[0]))
    lengths = table.lengths(rows)
    room = Destination.end_to_end(lengths, token_bytes=table.token_bytes, mask=True)
    table.read(rows, lengths, room)
    columns = []
    for name, values in (("tokens", room.tokens), ("mask", room.loss_mask)):
        values.tofile(path / name)
        columns.append(np.asarray(np.memmap(path / name, values.dtype, mode="r")))
        columns[-1].sum()
    return columns


def copy(plan, groups, columns):
    """As many bytes as the micro-batches have, from one end of the files to the other, into new memory each."""
    at = 0
    for indices in groups:
        size = int(plan.lengths[indices].sum())
        at = at if at + size <= len(columns[0]) else 0
        pairs = [(np.empty(size, column.dtype), column[at : at + size]) for column in columns]
        for room, values in pairs:
            np.copyto(room, values)
        del pairs, room
        at += size


def by_numpy(plan, groups, table, columns):
    all_lengths = table.lengths(Samples(source=np.zeros(table.sizes[0], np.int32), row=np.arange(table.sizes[0])))
    ends = np.cumsum(all_lengths)
    length = int(all_lengths[0])
    if (all_lengths == length).all():
        matrices = [column.reshape(-1, length) for column in columns]
        chosen = [plan.samples.take(indices).row for indices in groups]

        def take():
            for rows in chosen:
                pairs = [(np.empty((len(rows), length), matrix.dtype), matrix) for matrix in matrices]
                for room, matrix in pairs:
                    np.take(matrix, rows, axis=0, out=room, mode="clip")
                del pairs, room

        return take
    cut = [
        [
            [column[ends[row] - all_lengths[row] : ends[row]] for row in plan.samples.take(indices).row]
            for column in columns
        ]
        for indices in groups
    ]

    def concatenate():
        for pieces in cut:
            list(map(np.concatenate, pieces))

    return concatenate


def gather(plan, groups, table):
    for indices in groups:
        lengths = plan.lengths[indices]
        room = Destination.end_to_end(lengths, token_bytes=table.token_bytes, mask=True)
        table.read(plan.samples.take(indices), lengths, room)
        del room


def encode(plan, rounds, table):
    for each in rounds:
        found = encode_planned(plan, table, rounds=each, dp_rank=0, alignment=1, pad_to=0, sync_weights=False)
        found.some(0, len(found))


if __name__ == "__main__":
    main()
