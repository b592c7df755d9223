"""Packing: every policy on every distribution of lengths, at all sizes of a job, beside what bounds it.

    python -m benchmarks.packing_grid [FILE OF LENGTHS …]

Distributions x 4, 8, 64, 512 data-parallel ranks x 8k, 32k, 131k tokens a micro-batch x policies. A cell is a few
steps of at most 4 rounds, nearly full, without lookahead: the mean of each figure, and of its bound for as many
rounds as the plan has. The samples of a cell are the same for every policy. Figures depend on nothing but the code.

A file has lengths as text, `.npy`, or a JSON list; samples are drawn from it at random, and longer ones are cut to
the micro-batch.
"""

import sys
from pathlib import Path

import numpy as np

from benchmarks.lengths import GLM_4_5_AIR, LOGNORMALS, QWEN3_600M, lengths_of, one_step
from benchmarks.report import report
from dataserver.cli.plan_lengths import read_lengths
from dataserver.packing.figures import packing_bounds, packing_figures
from dataserver.packing.pack import pack
from dataserver.run_spec import PackingPolicy

RANKS = (4, 8, 64, 512)
CAPACITIES = (8192, 32_768, 131_072)
MAX_ROUNDS, MAX_STEPS = 4, 8

# Enough samples that a mean moves little, and few enough that the whole grid takes a few minutes.
STEP_SAMPLES, CELL_SAMPLES = 60_000, 20_000

# A step that is just full needs another round where a micro-batch holds only a few long samples.
FULL = 0.985

PUBLISHED = (
    "published for prime-rl (GLM-4.5-Air, 8 ranks x 131,072, 1,048,576 tokens a step; rank imbalance): "
    "first-fit 2.68, stream order 1.95, cost-balanced 1.64",
    "published for WLB-LLM (imbalance by its own measure): 1.44 before balancing, 1.05 after",
)


def steps_of(lengths, ranks, capacity):
    """The steps of a cell, as lengths of their samples; `lengths` gives as many tokens as it is asked for."""
    mean = lengths(100 * capacity).mean()
    rounds = int(np.clip(STEP_SAMPLES * mean // (ranks * capacity), 1, MAX_ROUNDS))
    budget = int(rounds * ranks * capacity * FULL)
    steps = int(np.clip(CELL_SAMPLES * mean // budget, 1, MAX_STEPS))
    left = lengths((steps + 1) * budget)
    for _ in range(steps):
        step = one_step(left, budget)
        yield step
        left = left[len(step) :]


def cell(steps, ranks, capacity, policy, cost):
    """Means over the steps."""
    figures, bounds, rounds = [], [], []
    for lengths in steps:
        plan = pack(lengths, dp_world_size=ranks, capacity=capacity, alignment=1, policy=policy, cost=cost)
        figures.append(packing_figures(lengths, plan, capacity=capacity, cost=cost))
        bounds.append(packing_bounds(lengths, plan, capacity=capacity, cost=cost))
        rounds.append(len(plan))
    return {
        "steps": len(steps),
        "samples": sum(map(len, steps)),
        "rounds": float(np.mean(rounds)),
        "efficiency": mean_of(figures, "token_efficiency"),
        "at most": mean_of(bounds, "token_efficiency"),
        "rank imbalance": mean_of(figures, "rank_imbalance"),
        "from": mean_of(bounds, "rank_imbalance"),
        "inflation": mean_of(figures, "round_inflation"),
        "at least": mean_of(bounds, "round_inflation"),
    }


def mean_of(values, figure):
    return float(np.mean([getattr(value, figure) for value in values]))


def drawn_from(path, capacity):
    """Lengths like those of a file, as many tokens as asked for."""
    there = np.minimum(read_lengths(path), capacity)

    def lengths(tokens):
        return np.random.default_rng(5).choice(there, int(1.1 * tokens / there.mean()) + 100)

    return lengths


def grid(name, lengths_at, cost):
    rows = []
    for ranks in RANKS:
        for capacity in CAPACITIES:
            steps = list(steps_of(lengths_at(capacity), ranks, capacity))
            rows += [
                {"lengths": name, "ranks": ranks, "capacity": capacity, "policy": policy.value}
                | cell(steps, ranks, capacity, policy, cost)
                for policy in PackingPolicy
            ]
    return rows


def main(files=()):
    rows = []
    for name in (*LOGNORMALS, "long"):
        cost = GLM_4_5_AIR if name == "agent" else QWEN3_600M
        rows += grid(name, lambda capacity, name=name: lambda tokens: lengths_of(name, tokens, capacity), cost)
    for path in map(Path, files):
        rows += grid(path.name, lambda capacity, path=path: drawn_from(path, capacity), QWEN3_600M)
    report("packing-grid", "Nearly full steps, no lookahead; means over the steps of a cell", rows, PUBLISHED)


if __name__ == "__main__":
    main(sys.argv[1:])
