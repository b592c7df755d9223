"""Packing: how long a plan takes, for 100,000 samples of every distribution and for what steps usually are.

CPU time of one `pack` on one core, the median of several after one that warms up. By how many samples share a
micro-batch the work differs, so each distribution comes with micro-batches that hold many of them and with some that
hold few.
"""

import time

import numpy as np

from benchmarks.lengths import GLM_4_5_AIR, LOGNORMALS, QWEN3_600M, lengths_of
from benchmarks.report import Spread, report
from dataserver.packing.pack import pack
from dataserver.run_spec import PackingPolicy

POLICIES = (PackingPolicy.BALANCED, PackingPolicy.COST_BALANCED, PackingPolicy.FIRST_FIT, PackingPolicy.SEQUENTIAL)
SAMPLES = 100_000
JOBS = ((4, 8192), (64, 32_768), (512, 32_768), (512, 131_072))
USUAL = ((8, 32_768), (64, 32_768))
TURNS = 7


def drawn(name, samples, capacity):
    """So many lengths of a distribution."""
    tokens = samples * lengths_of(name, 50 * capacity, capacity).mean()
    return np.random.default_rng(5).permutation(lengths_of(name, int(1.5 * tokens), capacity))[:samples]


def row(name, lengths, ranks, capacity):
    cost = GLM_4_5_AIR if name == "agent" else QWEN3_600M
    found = {"lengths": name, "samples": len(lengths), "ranks": ranks, "capacity": capacity}
    for policy in POLICIES:
        spent = []
        for _ in range(TURNS + 1):
            began = time.process_time()
            rounds = pack(lengths, dp_world_size=ranks, capacity=capacity, alignment=1, policy=policy, cost=cost)
            spent.append((time.process_time() - began) * 1e3)
        found |= {"rounds": len(rounds)} if policy is PackingPolicy.BALANCED else {}
        found[policy.value] = Spread.of(spent[1:])
    return found


def main():
    rows = []
    for name in (*LOGNORMALS, "long"):
        rows += [row(name, drawn(name, SAMPLES, capacity), ranks, capacity) for ranks, capacity in JOBS]
    for name in (*LOGNORMALS, "long"):
        for ranks, capacity in USUAL:
            budget = int(0.985 * 4 * ranks * capacity)
            lengths = lengths_of(name, budget, capacity)
            lengths = lengths[: np.searchsorted(np.cumsum(lengths), budget, side="right")]
            rows.append(row(name, lengths, ranks, capacity))
    rows.append(row("chat", drawn("chat", 1_000_000, 32_768), 512, 32_768))
    report("packing-time", "CPU ms of one plan: median (lowest-highest)", rows)


if __name__ == "__main__":
    main()
