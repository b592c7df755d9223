"""The planner remembers the windows that it dealt last; what it forgets it computes again, alike."""

from concurrent.futures import ThreadPoolExecutor

from dataserver.planning.planner import Planner
from dataserver.run_spec import BatchSpec, Shuffle
from dataserver.sampling.union import plain_union

BATCH = BatchSpec(step_samples=50, micro_batch_tokens=4096, lookahead_steps=4)


def planner_over(table):
    return Planner.of_order(plain_union(table.sizes, 3, Shuffle.FULL), table, "order")


def follow(planner, steps, ranks=2):
    plans, cursor = [], planner.initial_cursor()
    for _ in range(steps):
        plans.append(planner.plan(cursor, BATCH, ranks))
        cursor = plans[-1].end
    return plans


def test_the_steps_of_a_window_read_its_lengths_once(hashed_table):
    table = hashed_table(10_000)
    planner = planner_over(table)
    first = planner.plan(planner.initial_cursor(), BATCH, 2)
    read = table.read
    second = planner.plan(first.end, BATCH, 2)
    planner.plan(second.end, BATCH, 3)
    planner.plan(second.begin, BATCH, 1)
    assert table.read == read


def test_windows_that_were_forgotten_come_out_alike(hashed_table):
    table = hashed_table(10_000)
    planner = planner_over(table)
    plans = follow(planner, 60)
    read = table.read
    assert planner.plan(plans[1].begin, BATCH, 2).digest == plans[1].digest
    assert table.read > read


def test_runs_with_other_batch_specs_do_not_share_windows(hashed_table):
    planner = planner_over(hashed_table(10_000))
    plain = planner.plan(planner.initial_cursor(), BATCH, 2)
    costly = BATCH.model_copy(update={"cost_quadratic": 9})
    other = planner.plan(planner.initial_cursor(), costly, 2)
    assert other.digest == planner_over(hashed_table(10_000)).plan(planner.initial_cursor(), costly, 2).digest
    assert other.end.window.deal != plain.end.window.deal


def test_threads_share_a_planner(hashed_table):
    expected = [plan.digest for plan in follow(planner_over(hashed_table(10_000)), 24)]
    planner = planner_over(hashed_table(10_000))
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: [plan.digest for plan in follow(planner, 24)], range(8)))
    assert found == [expected] * 8
