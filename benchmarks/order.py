"""Orders over a billion rows: start-up, a step by depth, and how fair the windows of a block shuffle are.

Expected to move with nothing: orders are arithmetic and the cut reads only the rows of its own step, so start-up and
step cost are the same at step 10 and at the last row. A block shuffle lays out its windows once an epoch, some
nanoseconds a block; that is the first step's part here.
"""

import time
from dataclasses import dataclass

import numpy as np

from benchmarks.report import Spread, report
from dataserver.planning.plan import TextOnly
from dataserver.planning.planner import Planner
from dataserver.run_spec import BatchSpec, OrderSpec, Source
from dataserver.sampling.blocks import BlockShuffled
from dataserver.sampling.build import sample_order

ROWS = 10**9
BLOCK_ROWS = 10_000
REPEATS = 9
STEP_TOKENS, CAPACITY, RANKS = 2**20, 2**15, 8

SIZES = (5 * 10**8, 3 * 10**8, 2 * 10**8)
ORDERS = {
    "union, full": {},
    "union, block": {"shuffle": "block"},
    "weighted, full": {"weights": (0.2, 0.5, 0.3)},
    "weighted by tokens, block": {"weights": (0.2, 0.5, 0.3), "weight_unit": "tokens", "shuffle": "block"},
}

# The composition of batches: blocks laid out as 20 sources end to end.
FAIR_BLOCKS, FAIR_BLOCK_ROWS, FAIR_SOURCES, FAIR_EPOCHS = 2000, 1000, 20, 2


@dataclass(frozen=True)
class Rows:
    """A source in blocks of 10,000 rows."""

    rows: int

    @property
    def kept_tokens(self):
        return self.rows * 2064

    def block_rows(self):
        return np.full(self.rows // BLOCK_ROWS, BLOCK_ROWS)


class ArithmeticTable(TextOnly):
    """A table whose lengths are computed from the row number, and that counts how many it was asked."""

    sizes = SIZES

    def __init__(self):
        self.rows_read = 0

    def lengths(self, samples):
        self.rows_read += len(samples)
        mixed = (samples.row.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(52)
        return (mixed.astype(np.int64) % 4000) + 64

    def targets(self, samples):
        return np.ones(len(samples), dtype=np.int64)


def built(weights=(None,) * 3, **fields):
    sources = tuple(Source(store=f"s{number}", weight=weight) for number, weight in enumerate(weights))
    return sample_order(OrderSpec(sources=sources, max_length=4096, seed=1, **fields), [Rows(size) for size in SIZES])


def by_depth(name, fields):
    """A row for each depth: what a step costs there, and the first one of an order."""
    batch = BatchSpec(step_tokens=STEP_TOKENS, micro_batch_tokens=CAPACITY)
    began = time.perf_counter()
    order = built(**fields)
    planner = Planner.of_order(order, table := ArithmeticTable(), "bench")
    start_ms = (time.perf_counter() - began) * 1e3
    cursor = planner.initial_cursor()
    began = time.perf_counter()
    first = planner.plan(cursor, batch, RANKS)
    first_ms = (time.perf_counter() - began) * 1e3
    depths = {"1": 0, "10^5": 10**5 * len(first.samples), "last row": order.epoch_size - 1}
    times = {depth: [] for depth in depths}
    reads = {}
    for _ in range(REPEATS):
        for depth, position in depths.items():
            at = type(cursor)(order_fingerprint="bench", step=position // len(first.samples), position=position)
            table.rows_read = 0
            began = time.perf_counter()
            plan = planner.plan(at, batch, RANKS)
            times[depth].append((time.perf_counter() - began) * 1e3)
            reads[depth] = (len(plan.samples), table.rows_read)
    near = Spread.of(times["1"]).median
    return [
        {
            "order": name,
            "start ms": start_ms,
            "first step ms": first_ms,
            "at step": depth,
            "step ms": Spread.of(times[depth]),
            "ratio to step 1": Spread.of(times[depth]).median / near,
            "samples": reads[depth][0],
            "rows read": reads[depth][1],
        }
        for depth in depths
    ]


def variance(order, batch):
    """Variance, over batches, of how many samples a batch has of a source; the mean over the sources."""
    source = (order * FAIR_SOURCES // len(order))[: len(order) // batch * batch].reshape(-1, batch)
    return np.stack([(source == number).sum(axis=1) for number in range(FAIR_SOURCES)]).var(axis=1).mean()


def fairness():
    """Composition variance of block shuffles, as multiples of a full shuffle's."""
    total = FAIR_BLOCKS * FAIR_BLOCK_ROWS
    rows = []
    full = [np.random.default_rng(seed).permutation(total) for seed in range(FAIR_EPOCHS)]
    for window in (16, 32, 64, 128):
        shuffled = BlockShuffled(np.full(FAIR_BLOCKS, FAIR_BLOCK_ROWS), window, 1)
        epochs = [shuffled.rows(epoch, np.arange(total)) for epoch in range(FAIR_EPOCHS)]
        row = {"window, blocks": window, "reads a block": reads_per_block(epochs[0], window)}
        for batch in (128, 256, 512):
            ours = np.mean([variance(order, batch) for order in epochs])
            row[f"variance, batches of {batch}"] = ours / np.mean([variance(order, batch) for order in full])
        rows.append(row)
    return rows


def reads_per_block(order, window):
    """How often a block is read by a reader that keeps the blocks that it used last, one window of them."""
    held, reads = {}, 0
    for block in (order // FAIR_BLOCK_ROWS).tolist():
        if held.pop(block, True):
            reads += 1
        held[block] = False
        if len(held) > window:
            del held[next(iter(held))]
    return reads / FAIR_BLOCKS


def main():
    by_depth(*next(iter(ORDERS.items())))  # what is compiled is loaded once a process, whatever the order
    rows = [row for name, fields in ORDERS.items() for row in by_depth(name, fields)]
    notes = [f"{ROWS:,} rows in blocks of {BLOCK_ROWS:,}, {STEP_TOKENS:,} tokens a step, {RANKS} ranks"]
    report("order", "A step of a billion-row order, by depth", rows, notes)
    report(
        "block_shuffle",
        "Block shuffle: composition of batches beside a full shuffle's, and reads",
        fairness(),
        [f"{FAIR_BLOCKS} blocks of {FAIR_BLOCK_ROWS} rows, {FAIR_SOURCES} sources laid end to end"],
    )


if __name__ == "__main__":
    main()
