"""A billion rows cost what a thousand cost: step 1,000,000 is planned like step 10."""

import time
import tracemalloc
from dataclasses import dataclass

import numpy as np
import pytest

from dataserver.cursor import Cursor
from dataserver.planning.planner import Planner
from dataserver.run_spec import BatchSpec, OrderSpec, Shuffle, Source
from dataserver.sampling.build import sample_order
from dataserver.sampling.order import Place
from dataserver.sampling.union import plain_union

ROWS = 10**9
STEP_10 = Cursor(order_fingerprint="order", step=9, position=9 * 512)
STEP_1_000_000 = Cursor(order_fingerprint="order", step=999_999, position=999_999 * 512)
DEEP = Cursor(order_fingerprint="order", step=10**12, epoch=10**6, position=ROWS - 100)


@dataclass(frozen=True)
class BlocksOf10000:
    rows: int
    kept_tokens: int = 1

    def block_rows(self):
        return np.full(self.rows // 10_000, 10_000)


def planned(hashed_table, cursor, **spec):
    table = hashed_table(ROWS // 4, 0, ROWS - ROWS // 4)
    planner = Planner.of_order(plain_union(table.sizes, 3, Shuffle.FULL), table, "order")
    tracemalloc.start()
    plan = planner.plan(cursor, BatchSpec(micro_batch_tokens=8192, **spec), 8)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return plan, table.read, peak


@pytest.mark.parametrize("cursor", [STEP_10, STEP_1_000_000, DEEP])
@pytest.mark.parametrize("lookahead", [1, 8])
def test_a_step_reads_as_much_at_any_depth(hashed_table, cursor, lookahead):
    plan, read, peak = planned(hashed_table, cursor, step_samples=512, lookahead_steps=lookahead)
    near, near_read, near_peak = planned(hashed_table, STEP_10, step_samples=512, lookahead_steps=lookahead)
    assert read == near_read
    assert read <= 512 * lookahead * 2.2
    assert max(peak, near_peak) < 32_000_000  # a byte a row were thirty times as much
    assert abs(len(plan.samples) - len(near.samples)) < 0.2 * len(near.samples)
    assert plan.step == cursor.step + 1


@pytest.mark.parametrize("weights", [(None, None), (1, 2)])
@pytest.mark.parametrize("shuffle", ["full", "block"])
def test_no_order_of_a_billion_rows_needs_memory_or_time_for_them(weights, shuffle):
    """The last step reads and holds what any does: for blocks, a few numbers for each of 100,000."""
    sources = tuple(Source(store=f"store-{number}", weight=weight) for number, weight in enumerate(weights))
    spec = OrderSpec(sources=sources, max_length=8, shuffle=shuffle)
    tracemalloc.start()
    order = sample_order(spec, [BlocksOf10000(ROWS // 2), BlocksOf10000(ROWS // 2)])
    last = Place(epoch=5, position=order.epoch_size - 1)
    samples = order.samples(last, 500)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(samples) == 500
    assert peak < 30_000_000
    order.samples(last, 500)
    began = time.process_time()
    order.samples(last, 500)
    assert time.process_time() - began < 0.5


def test_a_step_by_tokens_reads_little_more_than_it_takes(hashed_table):
    plan, read, peak = planned(hashed_table, STEP_1_000_000, step_tokens=2**20)
    assert 2**20 - 1001 < plan.token_count <= 2**20
    assert read < len(plan.samples) * 1.3 + 300
    assert peak < 3_000_000


def test_the_end_of_an_epoch_of_a_billion_is_crossed_without_a_seam(hashed_table):
    plan, _, _ = planned(hashed_table, DEEP, step_samples=512)
    assert (plan.end.epoch, plan.end.position) == (DEEP.epoch + 1, 412)
    order = plain_union((ROWS // 4, 0, ROWS - ROWS // 4), 3, Shuffle.FULL)
    expected = np.concatenate(
        [
            order.samples(Place(epoch=10**6, position=ROWS - 100), 100).row,
            order.samples(Place(epoch=10**6 + 1), 412).row,
        ]
    )
    assert np.array_equal(plan.samples.row, expected)


def test_a_resume_inside_a_window_reads_that_window_only(hashed_table):
    first, _, _ = planned(hashed_table, STEP_1_000_000, step_samples=512, lookahead_steps=4)
    second, read, _ = planned(hashed_table, first.end, step_samples=512, lookahead_steps=4)
    assert read == 4 * 512
    assert second.begin == first.end
    assert not set(first.samples.row.tolist()) & set(second.samples.row.tolist())
