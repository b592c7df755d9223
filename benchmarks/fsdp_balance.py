"""What balance is worth: steps of `balanced`, `first_fit` and `sequential`, trained by two FSDP ranks on the CPU.

    lengths ──pack, by each policy──> the same samples in rounds ──the trainer's forward, backward, update──> seconds

The trainer's own model, sharding and step, fed from memory; a model that is small but whose attention costs more than
its layers on long samples. Each rank computes with one thread. Policies take turns, so that what else the machine does
meets all of them, and are compared within a turn. Two times of a step:

- on the clock: what a training run sees. It means something where each rank has a core of its own;
- the sum over rounds of the CPU time of the rank that needs most: how long the step would last on such a machine.

Beside them the ratio that the cost model predicts from the model's configuration (forward FLOPs), and the one that a
cost of `a + b n + c n²` predicts, fitted to the CPU times of all micro-batches.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
import torch.distributed as dist

from benchmarks.report import Spread, report
from dataserver.packing.cost import CostModel
from dataserver.packing.figures import packing_figures
from dataserver.packing.model_cost import cost_of_model
from dataserver.packing.pack import Rounds, pack
from dataserver.run_spec import PackingPolicy
from dataserver.wire.micro_batch import MicroBatch
from trainer.config import DeviceKind
from trainer.config_file import parse_config
from trainer.launch import join_world, start_collectives
from trainer.loop import Job
from trainer.train import build

RANKS: Final = 2
CAPACITY: Final = 2048
STEP_TOKENS: Final = 15_500
SETS: Final = 3
TURNS: Final = 5
POLICIES: Final = (PackingPolicy.BALANCED, PackingPolicy.FIRST_FIT, PackingPolicy.SEQUENTIAL)
MODEL: Final = {
    "model_type": "qwen3", "vocab_size": 256, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 16, "max_position_embeddings": 2048,
}  # fmt: skip
COST: Final = cost_of_model(MODEL)


def lengths_of(seed: int) -> np.ndarray:
    """One step of skewed lengths."""
    values = np.exp(np.random.default_rng(seed).normal(np.log(250), 1.1, 500))
    lengths = np.clip(values, 16, CAPACITY).astype(np.int64)
    return lengths[: np.searchsorted(np.cumsum(lengths), STEP_TOKENS, side="right")]


def packed(lengths: np.ndarray, policy: PackingPolicy, cost: CostModel = COST) -> Rounds:
    return pack(lengths, dp_world_size=RANKS, capacity=CAPACITY, alignment=1, policy=policy, cost=cost)


class InMemoryStep:
    """What a rank gets of a step; notes the CPU time that each round takes."""

    number, sync_weights, last, wait_s = 1, False, False, 0.0

    def __init__(self, lengths: np.ndarray, rounds: Rounds, rank: int) -> None:
        self.rounds = len(rounds)
        self.weight_sum = float((lengths - 1).sum())
        self.batches = [_batch(lengths[group[rank]], number) for number, group in enumerate(rounds)]
        self.round_s: list[float] = []

    def __iter__(self) -> Iterator[MicroBatch]:
        for batch in self.batches:
            begin = time.thread_time()
            yield batch
            self.round_s.append(time.thread_time() - begin)


def _batch(lengths: np.ndarray, number: int) -> MicroBatch:
    tokens = np.random.default_rng(number).integers(0, MODEL["vocab_size"], int(lengths.sum()), dtype=np.uint16)
    return MicroBatch(
        step=1, round=number, sync_weights=False, alignment=1, lengths=lengths, tokens=tokens,
        target_count=int((lengths - 1).sum()), loss_mask=np.ones(len(tokens), dtype=np.bool_),
    )  # fmt: skip


def rank_main(out: Path) -> None:
    """One rank: every set of samples, every turn, every policy."""
    torch.set_num_threads(1)
    world = join_world(DeviceKind.CPU, os.environ)
    start_collectives(world, 600)
    config = parse_config(
        {
            "run": {
                "name": "balance",
                "order": {"sources": [{"store": "memory"}], "max_length": CAPACITY},
                "batch": {"step_tokens": STEP_TOKENS, "micro_batch_tokens": CAPACITY},
            },
            "model": {"config": MODEL},
            "parallel": {"device": "cpu"},
            "checkpoint": {"dir": str(out.parent / "checkpoints")},
        },
        "benchmark",
    )
    model, optimizer = build(config, world, None)
    unused: dict[str, Any] = dict.fromkeys(
        ("feed", "checkpoints", "retention", "run_uid", "attempt", "held_out", "stamps")
    )
    job = Job(config=config, world=world, model=model, optimizer=optimizer, **unused)
    records = []
    for turn in range(TURNS + 1):
        for seed in range(SETS):
            for policy in POLICIES:
                record = timed_step(job, lengths_of(seed), policy)
                if turn:  # the first one warms up
                    records.append({"turn": turn, "seed": seed, "policy": policy.value} | record)
    if world.is_first:
        out.write_text(json.dumps(records))
    dist.destroy_process_group()


def timed_step(job: Job, lengths: np.ndarray, policy: PackingPolicy) -> dict[str, Any]:
    step: Any = InMemoryStep(lengths, packed(lengths, policy), job.world.rank)
    dist.barrier()
    begin = time.perf_counter()
    job.forward_backward(step)
    job.update(step, lr=1e-4)
    spent = time.perf_counter() - begin
    of_ranks: list[Any] = [None] * RANKS
    dist.all_gather_object(of_ranks, (spent, step.round_s))
    return {"clock_s": max(seconds for seconds, _ in of_ranks), "rounds_s": [rounds for _, rounds in of_ranks]}


def fitted(records: list[dict[str, Any]]) -> np.ndarray:
    """(a, b, c): least squares of a micro-batch's CPU time over its samples' n and n², the least of all turns."""
    rows, seconds = [], []
    for seed in range(SETS):
        lengths = lengths_of(seed)
        for policy in POLICIES:
            times = [each["rounds_s"] for each in records if (each["seed"], each["policy"]) == (seed, policy.value)]
            least = np.min(times, axis=0)
            for number, group in enumerate(packed(lengths, policy)):
                for rank, members in enumerate(group):
                    own = lengths[members].astype(float)
                    rows.append([1.0, own.sum(), (own**2).sum()])
                    seconds.append(least[rank][number])
    return np.linalg.lstsq(np.array(rows), np.array(seconds), rcond=None)[0]


def duration(lengths: np.ndarray, rounds: Rounds, coefficients: np.ndarray) -> float:
    """The sum over rounds of the costliest micro-batch at a cost of a + b n + c n²."""
    a, b, c = coefficients
    own = b * lengths + c * lengths.astype(float) ** 2
    return sum(max(a + own[members].sum() for members in group) for group in rounds)


def rows_of(records: list[dict[str, Any]], fit: np.ndarray) -> list[dict[str, object]]:
    flops = np.array([0.0, COST.linear, COST.quadratic])
    rows = []
    for seed in range(SETS):
        lengths = lengths_of(seed)
        plans = {policy: packed(lengths, policy) for policy in POLICIES}
        best = plans[PackingPolicy.BALANCED]
        for policy, rounds in plans.items():
            figures = packing_figures(lengths, rounds, capacity=CAPACITY, cost=COST)
            rows.append(
                {
                    "samples": len(lengths),
                    "policy": policy.value,
                    "rounds": len(rounds),
                    "inflation": figures.round_inflation,
                    "step s": Spread.of([each["clock_s"] for each in of(records, seed, policy)]),
                    "x balanced, FLOPs": duration(lengths, rounds, flops) / duration(lengths, best, flops),
                    "x, fitted": duration(lengths, rounds, fit) / duration(lengths, best, fit),
                    "x, CPU time": ratios(records, seed, policy, critical),
                    "x, on the clock": ratios(records, seed, policy, lambda each: each["clock_s"]),
                }
            )
    return rows


def of(records: list[dict[str, Any]], seed: int, policy: PackingPolicy) -> list[dict[str, Any]]:
    return [each for each in records if (each["seed"], each["policy"]) == (seed, policy.value)]


def critical(record: dict[str, Any]) -> float:
    """The sum over rounds of the CPU time of the rank that needs most."""
    return float(np.max(record["rounds_s"], axis=0).sum())


def ratios(records: list[dict[str, Any]], seed: int, policy: PackingPolicy, measure: Any) -> Spread:
    pairs = zip(of(records, seed, policy), of(records, seed, PackingPolicy.BALANCED), strict=True)
    return Spread.of([measure(each) / measure(best) for each, best in pairs])


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "records.json"
        launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS))
        threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        command = [sys.executable, *launcher, "-m", "benchmarks.fsdp_balance", str(out)]
        subprocess.run(command, check=True, env=os.environ | threads, cwd=Path(__file__).parents[1])
        records = json.loads(out.read_text())
    fit = fitted(records)
    notes = [
        f"cost from the configuration: n² counts as n from {COST.linear / COST.quadratic:.0f} tokens on; "
        f"fitted: from {fit[1] / fit[2]:.0f} on, and {fit[0] * 1e3:.1f} ms a micro-batch",
        f"{TURNS} turns; ratios to `balanced` of the same turn and the same samples: median (lowest-highest)",
    ]
    report(
        "fsdp_balance", f"{RANKS} FSDP ranks on the CPU, {CAPACITY} tokens a micro-batch", rows_of(records, fit), notes
    )


if __name__ == "__main__":
    rank_main(Path(sys.argv[1])) if "RANK" in os.environ else main()
