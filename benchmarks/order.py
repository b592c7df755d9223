"""Order, seek and plan over a billion rows: what a step costs at the beginning and far behind it.

Expected to move with nothing: the permutation is counter-based and the cut reads only the rows
of its own step, so start-up and step cost are the same at step 10 and at step 1,000,000.
"""

import time

import numpy as np

from benchmarks.report import Spread, report
from dataserver.cursor import Cursor
from dataserver.planning.plan import TextOnly
from dataserver.planning.planner import Planner
from dataserver.run_spec import BatchSpec, Shuffle
from dataserver.sampling.union import plain_union

ROWS = 10**9
REPEATS = 9
STEP_TOKENS, CAPACITY, RANKS = 2**20, 2**15, 8


class ArithmeticTable(TextOnly):
    """A table whose lengths are computed from the row number, and that counts how many it was asked."""

    sizes = (ROWS,)

    def __init__(self):
        self.rows_read = 0

    def lengths(self, samples):
        self.rows_read += len(samples)
        mixed = (samples.row.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(52)
        return (mixed.astype(np.int64) % 4000) + 64

    def targets(self, samples):
        return np.ones(len(samples), dtype=np.int64)


def main():
    batch = BatchSpec(step_tokens=STEP_TOKENS, micro_batch_tokens=CAPACITY)
    table = ArithmeticTable()
    began = time.perf_counter()
    planner = Planner.of_order(plain_union((ROWS,), seed=1, shuffle=Shuffle.FULL), table, "bench")
    start_ms = (time.perf_counter() - began) * 1e3
    mean_samples = planner.plan(planner.initial_cursor(), batch, RANKS).end.position
    depths = {"1": 0, "10": 9, "100,000": 99_999, "1,000,000": 999_999}
    times = {depth: [] for depth in depths}
    reads = {}
    for _ in range(REPEATS):
        for depth, done in depths.items():
            position = done * mean_samples
            cursor = Cursor(order_fingerprint="bench", step=done, epoch=position // ROWS, position=position % ROWS)
            table.rows_read = 0
            began = time.perf_counter()
            plan = planner.plan(cursor, batch, RANKS)
            times[depth].append((time.perf_counter() - began) * 1e3)
            reads[depth] = (table.rows_read, len(plan.samples))
    first = Spread.of(times["1"]).median
    rows = [
        {
            "step": depth,
            "plan ms": Spread.of(times[depth]),
            "ratio to step 1": Spread.of(times[depth]).median / first,
            "samples": reads[depth][1],
            "rows read": reads[depth][0],
        }
        for depth in depths
    ]
    notes = [f"planner made in {start_ms:.2f} ms; {ROWS:,} rows, {STEP_TOKENS:,} tokens a step, {RANKS} ranks"]
    report("order", "A step of a billion-row order, by depth", rows, notes)


if __name__ == "__main__":
    main()
