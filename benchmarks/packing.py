"""Packing: the three figures of every policy over distributions of lengths, ranks and capacities, beside their bounds.

Four tables: steps without lookahead; windows of 16 steps, as the planner deals them; steps of so many rounds; and the
situation that prime-rl published figures for (8 ranks, 131,072 tokens a micro-batch, 1,048,576 a
step, lengths like agent traces), where rank imbalance was 2.68 for first-fit, 1.95 in stream
order and 1.64 for its cost-balanced policy. WLB-LLM reports 1.44 before and 1.05 after balancing.

Expected: `balanced` near the bound wherever a step has a few rounds; first-fit and cost-balanced
far from it where few long samples share a bin. How long a plan takes, `packing_time` tells.
"""

import numpy as np

from benchmarks.lengths import GLM_4_5_AIR, QWEN3_600M, lengths_of, one_step
from benchmarks.report import report
from dataserver.cli.plan_lengths import ListedLengths
from dataserver.packing.figures import packing_bounds, packing_figures
from dataserver.packing.pack import pack
from dataserver.planning.plan import EndOfRun
from dataserver.planning.planner import Planner
from dataserver.run_spec import BatchSpec, PackingPolicy, Shuffle
from dataserver.sampling.union import plain_union

BASELINES = (PackingPolicy.BALANCED, PackingPolicy.COST_BALANCED, PackingPolicy.FIRST_FIT, PackingPolicy.SEQUENTIAL)
GRID = (
    ("chat", 4, 8192), ("chat", 8, 32_768), ("chat", 64, 32_768), ("instruct", 64, 8192), ("reasoning", 8, 32_768),
    ("reasoning", 64, 32_768), ("agent", 8, 131_072), ("agent", 64, 131_072), ("long", 64, 32_768),
    ("long", 64, 131_072), ("long", 512, 32_768),
)  # fmt: skip
OF_ROUNDS = (
    ("chat", 4, 8192), ("chat", 8, 32_768), ("instruct", 4, 8192), ("reasoning", 8, 32_768), ("agent", 8, 131_072),
    ("long", 64, 32_768),
)  # fmt: skip
ROUNDS, STEPS = 4, 20
FULL = {"chat": 0.999, "instruct": 0.999}


def measured(lengths, ranks, capacity, policy, cost):
    rounds = pack(lengths, dp_world_size=ranks, capacity=capacity, alignment=1, policy=policy, cost=cost)
    figures = packing_figures(lengths, rounds, capacity=capacity, cost=cost)
    bounds = packing_bounds(lengths, rounds, capacity=capacity, cost=cost)
    return {
        "samples": len(lengths),
        "rounds": len(rounds),
        "efficiency": figures.token_efficiency,
        "at most": bounds.token_efficiency,
        "rank imbalance": figures.rank_imbalance,
        "inflation": figures.round_inflation,
        "at least": bounds.round_inflation,
    }


def steps_table():
    rows = []
    for name, ranks, capacity in GRID:
        budget = ROUNDS * ranks * capacity
        lengths = one_step(lengths_of(name, budget, capacity), budget * FULL.get(name, 0.995))
        rows += [
            {"lengths": name, "ranks": ranks, "capacity": capacity, "policy": policy.value}
            | measured(lengths, ranks, capacity, policy, GLM_4_5_AIR if name == "agent" else QWEN3_600M)
            for policy in BASELINES
        ]
    report("packing", f"Steps of {ROUNDS} rounds, nearly full, no lookahead", rows)


def planned(lengths, ranks, batch):
    """All plans of a run that its batch spec ends, over `lengths` in their order."""
    planner = Planner.of_order(
        plain_union((len(lengths),), seed=1, shuffle=Shuffle.SEQUENTIAL), ListedLengths(lengths), "bench"
    )
    cursor, plans = planner.initial_cursor(), []
    while not isinstance(plan := planner.plan(cursor, batch, ranks), EndOfRun):
        plans.append(plan)
        cursor = plan.end
    return plans


def mean_of(plans, figure):
    return float(np.mean([getattr(plan.figures, figure) for plan in plans]))


def of_window(plans, capacity, cost, measure):
    """Round inflation of a window's rounds together, or its bound: steps may share them out as they like."""
    begins = np.cumsum([0, *(len(plan.lengths) for plan in plans)])
    rounds = [
        tuple(members + begin for members in group)
        for plan, begin in zip(plans, begins, strict=False)
        for group in plan.rounds
    ]
    lengths = np.concatenate([plan.lengths for plan in plans])
    return measure(lengths, rounds, capacity=capacity, cost=cost).round_inflation


def windows_table():
    rows = []
    for name, ranks, capacity, rounds in (
        ("long", 64, 32_768, 1),
        ("long", 64, 32_768, 4),
        ("agent", 8, 131_072, 1),
        ("agent", 8, 131_072, 4),
        ("reasoning", 64, 32_768, 2),
    ):
        budget = int(rounds * ranks * capacity * 0.985)
        cost = GLM_4_5_AIR if name == "agent" else QWEN3_600M
        lengths = lengths_of(name, 17 * budget, capacity)
        for lookahead in (1, 4, 16):
            batch = BatchSpec(
                step_tokens=budget, micro_batch_tokens=capacity, lookahead_steps=lookahead, max_steps=lookahead,
                cost_linear=cost.linear, cost_quadratic=cost.quadratic,
            )  # fmt: skip
            plans = planned(lengths, ranks, batch)
            tokens = np.array([plan.token_count for plan in plans])
            rows.append(
                {
                    "lengths": name,
                    "ranks": ranks,
                    "capacity": capacity,
                    "rounds": max(len(plan.rounds) for plan in plans),
                    "lookahead": lookahead,
                    "efficiency": mean_of(plans, "token_efficiency"),
                    "rank imbalance": mean_of(plans, "rank_imbalance"),
                    "inflation": mean_of(plans, "round_inflation"),
                    "of the window": of_window(plans, capacity, cost, packing_figures),
                    "at least": of_window(plans, capacity, cost, packing_bounds),
                    "worst step": max(plan.figures.round_inflation for plan in plans),
                    "token spread": float(np.abs(tokens / tokens.mean() - 1).max()),
                }
            )
    report("packing-windows", "Windows of steps that are 98.5 % full, as the planner deals them", rows)


def published_table():
    ranks, capacity, steps = 8, 131_072, 32
    lengths = lengths_of("agent", 40 * ranks * capacity, capacity)
    rows = []
    for budget in ({"step_tokens": ranks * capacity}, {"step_rounds": 1}):
        for policy in PackingPolicy:
            batch = BatchSpec(
                **budget, micro_batch_tokens=capacity, policy=policy, max_steps=steps,
                cost_linear=GLM_4_5_AIR.linear, cost_quadratic=GLM_4_5_AIR.quadratic,
            )  # fmt: skip
            plans = planned(lengths, ranks, batch)
            rows.append(
                {
                    "budget": "1,048,576 tokens" if "step_tokens" in budget else "1 round",
                    "policy": policy.value,
                    "rounds": float(np.mean([len(plan.rounds) for plan in plans])),
                    "efficiency": mean_of(plans, "token_efficiency"),
                    "rank imbalance": mean_of(plans, "rank_imbalance"),
                    "inflation": mean_of(plans, "round_inflation"),
                    "worst step": max(plan.figures.round_inflation for plan in plans),
                }
            )
    published = "published for prime-rl (rank imbalance): first-fit 2.68, stream order 1.95, cost-balanced 1.64"
    report("packing-published", "8 ranks, 131,072 a micro-batch, lengths like agent traces", rows, [published])


def rounds_table():
    """Steps of so many rounds, beside the fullest that whole samples in their order can make them."""
    rows = []
    for name, ranks, capacity in OF_ROUNDS:
        cost = GLM_4_5_AIR if name == "agent" else QWEN3_600M
        room = ROUNDS * ranks * capacity
        lengths = lengths_of(name, (STEPS + 1) * room, capacity)
        for policy in BASELINES:
            batch = BatchSpec(
                step_rounds=ROUNDS, micro_batch_tokens=capacity, policy=policy, max_steps=STEPS,
                cost_linear=cost.linear, cost_quadratic=cost.quadratic,
            )  # fmt: skip
            plans = planned(lengths, ranks, batch)
            begins = np.cumsum([0, *(len(plan.lengths) for plan in plans[:-1])])
            rows.append(
                {
                    "lengths": name,
                    "ranks": ranks,
                    "capacity": capacity,
                    "policy": policy.value,
                    "efficiency": mean_of(plans, "token_efficiency"),
                    "at most": float(np.mean([one_step(lengths[begin:], room).sum() / room for begin in begins])),
                    "inflation": mean_of(plans, "round_inflation"),
                }
            )
    report("packing-rounds", f"{STEPS} steps of {ROUNDS} rounds each, by `step_rounds`", rows)


def main():
    steps_table()
    windows_table()
    published_table()
    rounds_table()


if __name__ == "__main__":
    main()
