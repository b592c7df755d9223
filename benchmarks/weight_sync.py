"""What weights on demand cost a trainer: steps without evals, idle steps between syncs, and a sync after every step.

All take turns on one model, step by step: a sync, a step that counts for nobody, then the others in each of their
orders in turn. Idle steps must make no transfer call, and take as long as steps of a job that knows no engines; how
well that can be told here, a second arm of such steps says. Ratios are medians over the turns, of time by the clock
and of CPU time, which others on the machine hardly move. Each has the 95 % interval of the median, for which no
distribution is assumed (that of the sign test).
"""

import math
import multiprocessing
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle, permutations
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np
import torch
import torch.distributed as dist

from benchmarks.report import report
from benchmarks.sync_receiver import serve
from dataserver.cursor import Cursor
from dataserver.testing import attempt_info
from dataserver.weight_sync import OrchestratorAddress, WeightSync
from dataserver.wire.micro_batch import MicroBatch
from trainer.config import DeviceKind
from trainer.config_file import parse_config
from trainer.launch import World, join_world, start_collectives
from trainer.loop import Job
from trainer.stamps import EngineStamps, IgnoredStamps, Stamps
from trainer.train import build

TURNS: Final = 240
WARM_UP: Final = 6
STEP_TOKENS: Final = 128
VOCABULARY: Final = 4096
MODEL: Final = {
    "model_type": "qwen3", "vocab_size": VOCABULARY, "hidden_size": 128, "intermediate_size": 384,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
}  # fmt: skip
OFF, AGAIN, IDLE, EVERY = "evals off", "evals off, again", "on demand, idle", "every step"


class InMemoryStep:
    """One step of one micro-batch, the same tokens each time."""

    def __init__(self, orchestrator: OrchestratorAddress) -> None:
        lengths = np.full(STEP_TOKENS // 64, 64)
        tokens = np.random.default_rng(0).integers(1, VOCABULARY, STEP_TOKENS).astype(np.uint16)
        self.batch = MicroBatch(
            step=1, round=0, sync_weights=False, alignment=1, lengths=lengths, target_count=STEP_TOKENS - len(lengths),
            tokens=tokens, loss_mask=np.ones(STEP_TOKENS, dtype=bool), loss_weight=None,
        )  # fmt: skip
        self.number, self.rounds, self.weight_sum, self.wait_s = 0, 1, float(self.batch.target_count), 0.0
        self.sync_weights, self.orchestrator = False, orchestrator
        self.end = Cursor(order_fingerprint="f" * 32, step=1, position=1)

    def __iter__(self) -> Iterator[MicroBatch]:
        return iter([self.batch])


class Kept:
    """In the place of metrics: keeps figures."""

    def __init__(self) -> None:
        self.figures: list[Any] = []

    def write(self, figures: Any) -> None:
        self.figures.append(figures)


def configuration(directory: Path) -> Any:
    return parse_config(
        {
            "run": {
                "name": "syncs",
                "order": {"sources": [{"store": "memory"}], "max_length": STEP_TOKENS},
                "batch": {"step_tokens": STEP_TOKENS, "micro_batch_tokens": STEP_TOKENS},
            },
            "model": {"config": MODEL},
            "parallel": {"device": "cpu"},
            "checkpoint": {"dir": str(directory)},
            "weights": {"transport": "gloo", "dtype": "bf16", "bucket_bytes": 2**19},
        },
        "benchmark",
    )


@contextmanager
def receiver() -> Iterator[tuple[str, Any]]:
    """The address of an orchestrator, and how to ask it for the number of transfers."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(theirs,), daemon=True)
    process.start()
    theirs.close()
    try:
        yield ours.recv(), ours
    finally:
        ours.close()
        process.join(10)
        process.kill()


@dataclass(frozen=True, slots=True)
class Spent:
    """What a step took, in seconds: by the clock, and of CPU time by all threads of the trainer."""

    wall_s: float
    cpu_s: float


def take_step(job: Job, stamps: Stamps, step: InMemoryStep, *, sync: bool) -> Spent:
    step.number += 1
    step.sync_weights = sync
    local: Any = step
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    job.forward_backward(local)
    job.update(local, lr=1e-4)
    stamps.step_done(local)
    return Spent(time.perf_counter() - wall_s, time.process_time() - cpu_s)


def measure(directory: Path, world: World) -> tuple[dict[str, list[Spent]], list[Any], int]:
    """What steps took, by arm and turn; the syncs' figures; transfers that idle steps asked for."""
    config = configuration(directory)
    reported: list[WeightSync] = []
    with receiver() as (address, asked):
        model, optimizer = build(config, world, None)
        engine = EngineStamps(
            config=config.weights, job=config, world=world, model=model, attempt=attempt_info(), deliver=reported.append
        )
        unused: dict[str, Any] = dict.fromkeys(
            ("feed", "checkpoints", "retention", "run_uid", "attempt", "held_out", "stamps")
        )
        job = Job(config=config, world=world, model=model, optimizer=optimizer, **unused)
        step = InMemoryStep(OrchestratorAddress(epoch=1, address=address))
        of_arm: dict[str, list[Spent]] = {arm: [] for arm in (OFF, AGAIN, IDLE, EVERY)}
        stamps: dict[str, Stamps] = {OFF: IgnoredStamps(), AGAIN: IgnoredStamps(), IDLE: engine}
        kept: Any = Kept()
        idle_calls = 0
        orders = cycle(permutations((OFF, AGAIN, IDLE)))
        for turn in range(WARM_UP + TURNS):
            spent = {EVERY: take_step(job, engine, step, sync=True)}
            await_commits(engine, kept, turn + 1)
            before = transfers(asked)
            take_step(job, stamps[OFF], step, sync=False)  # what the sync left behind is its own
            spent |= {arm: take_step(job, stamps[arm], step, sync=False) for arm in next(orders)}
            idle_calls += transfers(asked) - before
            if turn >= WARM_UP:
                for arm, each in spent.items():
                    of_arm[arm].append(each)
        engine.close()
    return of_arm, kept.figures[WARM_UP:], idle_calls


def await_commits(engine: EngineStamps, kept: Any, count: int) -> None:
    """No commit may run beside the step that follows."""
    while len(kept.figures) < count:
        time.sleep(0.005)
        engine.write(kept)


def transfers(asked: Any) -> int:
    asked.send("how many?")
    return int(asked.recv())


def ratio(values: Sequence[float], base: Sequence[float]) -> tuple[float, float, float]:
    """Median ratio of pairs, and the ends of its 95 % interval: order statistics, by the binomial's normal limit."""
    ratios = sorted(value / other for value, other in zip(values, base, strict=True))
    away = math.ceil(0.98 * math.sqrt(len(ratios)))
    middle = len(ratios) // 2
    return median(ratios), ratios[max(middle - away, 0)], ratios[min(middle + away, len(ratios) - 1)]


def rows_of(of_arm: dict[str, list[Spent]]) -> list[dict[str, object]]:
    rows = []
    for arm, steps in of_arm.items():
        row: dict[str, object] = {"evals": arm}
        for clock, field in (("wall", "wall_s"), ("CPU", "cpu_s")):
            taken, base = ([getattr(spent, field) for spent in each] for each in (steps, of_arm[OFF]))
            middle, low, high = ratio(taken, base)
            row[f"step, {clock} ms"] = 1e3 * median(taken)
            row[f"{clock} x evals off"] = f"{middle:.3f}"
            row[f"{clock}, 95 %"] = f"{low:.3f} to {high:.3f}" if arm != OFF else ""
        rows.append(row)
    return rows


def main() -> None:
    torch.set_num_threads(1)
    world = join_world(DeviceKind.CPU, {})
    start_collectives(world, 3600)
    with tempfile.TemporaryDirectory() as directory:
        of_arm, syncs, idle_calls = measure(Path(directory), world)
    dist.destroy_process_group()
    assert idle_calls == 0, f"idle steps asked for {idle_calls} transfers"
    assert all(sync.sync_outcome == "landed" for sync in syncs)
    stalls, totals = [sync.sync_stall_s for sync in syncs], [sync.sync_s for sync in syncs]
    report(
        "weight_sync",
        f"{TURNS} turns of one step each, of {STEP_TOKENS} tokens; {syncs[0].sync_bytes / 1e6:.0f} MB by gloo",
        rows_of(of_arm),
        [
            f"a sync: total {1e3 * median(totals):.1f} ms, of which training stood still {1e3 * median(stalls):.1f} ms "
            f"(share {median(s / t for s, t in zip(stalls, totals, strict=True)):.2f}); {len(syncs)} syncs, all landed",
            "idle steps: 0 transfer calls",
        ],
    )


if __name__ == "__main__":
    main()
