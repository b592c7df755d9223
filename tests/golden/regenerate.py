"""Digests of orders and plans, and the script that writes them to plans.json.

    python tests/golden/regenerate.py

It refuses while a digest changed and the version that covers it did not.
"""

import hashlib
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dataserver.planning.fingerprint import ORDER_VERSION, PLANNER_VERSION, order_fingerprint
from dataserver.planning.plan import EndOfRun, TextOnly
from dataserver.planning.planner import Planner
from dataserver.planning.stages import PlannedStage
from dataserver.run_spec import BatchSpec, OrderSpec, Shuffle, Source
from dataserver.sampling.build import sample_order
from dataserver.sampling.order import Place, Samples

PATH = Path(__file__).with_name("plans.json")

QWEN3_600M = {"cost_linear": 1_133_248_512, "cost_quadratic": 114_688}

# A shuffle, or fields of the order spec and `weights`; or stages of them, each with its first step.
Kind = Shuffle | dict[str, Any] | tuple[tuple[int, dict[str, Any]], ...]

# name -> (sizes of the sources, kind of order, batch spec, data-parallel size of each step)
CASES: dict[str, tuple[tuple[int, ...], Kind, dict[str, Any], tuple[int, ...]]] = {
    "tokens, one rank": ((1000,), Shuffle.FULL, {"step_tokens": 8192}, (1, 1, 1)),
    "tokens, sequential, three sources": ((40, 0, 60), Shuffle.SEQUENTIAL, {"step_tokens": 20_000}, (2, 3, 4)),
    "samples over epochs": ((7, 5), Shuffle.FULL, {"step_samples": 9, "max_epochs": 3}, (2,) * 5),
    "first fit": ((1000,), Shuffle.FULL, {"step_tokens": 65_536, "policy": "first_fit", "alignment": 16}, (4, 4)),
    "quadratic cost": ((1000,), Shuffle.FULL, {"step_tokens": 65_536, "alignment": 8, **QWEN3_600M}, (4, 8)),
    "window, ranks change inside": ((5000,), Shuffle.FULL, {"step_tokens": 32_768, "lookahead_steps": 3}, (4, 2, 8, 1)),
    "window, quadratic cost": (
        (5000, 3000),
        Shuffle.FULL,
        {"step_tokens": 65_536, "lookahead_steps": 4, "max_steps": 6, **QWEN3_600M},
        (8,) * 6,
    ),
    "window, fewer samples than ranks": (
        (30,),
        Shuffle.FULL,
        {"step_samples": 3, "lookahead_steps": 4, "max_epochs": 1},
        (16,) * 10,
    ),
    "rounds, ranks change": ((3000,), Shuffle.FULL, {"step_rounds": 2, **QWEN3_600M}, (4, 2, 8)),
    "cost balanced": ((1000,), Shuffle.FULL, {"step_tokens": 65_536, "policy": "cost_balanced", **QWEN3_600M}, (4, 3)),
    "sequential, padded": (
        (1000,),
        Shuffle.FULL,
        {"step_tokens": 65_536, "policy": "sequential", "alignment": 2, "pad_to": "capacity"},
        (4, 4),
    ),
    "none": ((100,), Shuffle.FULL, {"step_samples": 10, "policy": "none"}, (4, 4)),
    "blocks": ((700, 0, 2300), {"shuffle": "block", "block_window": 8}, {"step_tokens": 65_536}, (8, 8)),
    "weighted samples": (
        (700, 50, 2300),
        {"weights": (0.5, 0.2, 0.3), "stopping": "first_exhausted"},
        {"step_samples": 100},
        (4, 4),
    ),
    "weighted tokens": (
        (700, 0, 2300),
        {"weights": (1, 0, 2), "weight_unit": "tokens"},
        {"step_tokens": 65_536},
        (4, 8),
    ),
    "weighted blocks, each row once": (
        (700, 50, 0),
        {"weights": (1, 1, 1), "stopping": "all_exhausted_without_replacement", "shuffle": "block", "block_window": 4},
        {"step_samples": 100, "lookahead_steps": 2},
        (2, 2, 4),
    ),
    "with replacement": (
        (700, 50),
        {"weights": (3, 1), "stopping": "with_replacement"},
        {"step_samples": 100},
        (1, 1),
    ),
    "stages": (
        (70, 50, 90),
        (
            (1, {"weights": (1, 1, 0)}),
            (3, {"weights": (1, 3, 1), "weight_unit": "tokens"}),
            (5, {"shuffle": "block", "block_window": 2}),
            (7, {"weights": (1, 1, 1), "stopping": "all_exhausted_without_replacement"}),
        ),
        {"step_samples": 30, "lookahead_steps": 2},
        (2,) * 8,
    ),
    "a billion rows": ((10**9, 10**8), Shuffle.FULL, {"step_tokens": 65_536}, (8, 8)),
}


class Table(TextOnly):
    """Lengths of 2 to 2049 tokens, computed from source and row."""

    def __init__(self, sizes: tuple[int, ...]) -> None:
        self.sizes = sizes

    def lengths(self, samples: Samples) -> np.ndarray:
        mixed = (samples.row.astype(np.uint64) * np.uint64(8) + samples.source.astype(np.uint64)) * np.uint64(
            0x9E3779B97F4A7C15
        )
        return (2 + (mixed >> np.uint64(40)) % np.uint64(2048)).astype(np.int64)

    def targets(self, samples: Samples) -> np.ndarray:
        return self.lengths(samples) // 2


def compute() -> dict[str, Any]:
    """What plans.json holds: both versions and, for each case, its order and its plans."""
    return {
        "order_version": ORDER_VERSION,
        "planner_version": PLANNER_VERSION,
        "cases": {name: _case(*case) for name, case in CASES.items()},
    }


def faults(recorded: Mapping[str, Any], computed: Mapping[str, Any]) -> list[str]:
    """What changed without its version; cases that are new do not count."""
    if recorded["order_version"] != computed["order_version"]:
        return []
    found = []
    for name, case in recorded["cases"].items():
        now = computed["cases"].get(name, case)
        if any(now[part] != case[part] for part in ("fingerprint", "order")):
            found.append(f"{name}: the order changed, so raise ORDER_VERSION in dataserver/planning/fingerprint.py")
        elif recorded["planner_version"] == computed["planner_version"] and now["plans"] != case["plans"]:
            found.append(f"{name}: the plans changed, so raise PLANNER_VERSION in dataserver/planning/fingerprint.py")
    return found


@dataclass(frozen=True)
class Rows:
    """What an order knows of a source: blocks of 16 rows, and a mean length that its rows do not have."""

    rows: int

    @property
    def kept_tokens(self) -> int:
        return self.rows * 100 + 3 * self.rows % 1000

    def block_rows(self) -> np.ndarray:
        return np.array([16] * (self.rows // 16) + [self.rows % 16], dtype=np.int64)


def _case(sizes: tuple[int, ...], kind: Kind, spec: dict[str, Any], ranks: tuple[int, ...]) -> dict[str, Any]:
    chain = kind if isinstance(kind, tuple) else ((1, kind),)
    stages: list[PlannedStage] = []
    for number, (first_step, fields) in enumerate(chain):
        order_spec = _order_spec(sizes, fields if isinstance(fields, dict) else {"shuffle": fields})
        order = sample_order(order_spec, [Rows(size) for size in sizes], stage=number)
        before = stages[-1].fingerprint if stages else ""
        fingerprint = order_fingerprint(
            order_spec, [f"{size:032x}" for size in sizes], before=before, first_step=first_step
        )
        stages.append(PlannedStage(first_step=first_step, order=order, table=Table(sizes), fingerprint=fingerprint))
    planner = Planner(stages)
    batch = BatchSpec(**{"micro_batch_tokens": 4096} | spec)
    cursor, plans = planner.initial_cursor(), []
    for dp_world_size in ranks:
        plan = planner.plan(cursor, batch, dp_world_size)
        if isinstance(plan, EndOfRun):
            break
        plans.append(plan.digest)
        cursor = plan.end
    orders = [stage.order for stage in stages]
    stretches = [
        order.samples(Place(epoch=epoch), min(order.epoch_size, 1000)) for order in orders for epoch in (0, 1, 1000)
    ]
    return {"fingerprint": fingerprint, "order": [_samples_digest(samples) for samples in stretches], "plans": plans}


def _order_spec(sizes: tuple[int, ...], fields: dict[str, Any]) -> OrderSpec:
    weights = fields.get("weights", [None] * len(sizes))
    sources = tuple(Source(store=f"store-{number}", weight=weight) for number, weight in enumerate(weights))
    others = {name: value for name, value in fields.items() if name != "weights"}
    return OrderSpec(sources=sources, seed=20, max_length=2049, **others)


def _samples_digest(samples: Samples) -> str:
    data = samples.source.astype("<i4").tobytes() + samples.row.astype("<i8").tobytes()
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def main() -> int:
    """Write plans.json; 1 when a version has to be raised first."""
    computed = compute()
    if PATH.exists() and (found := faults(json.loads(PATH.read_text()), computed)):
        print(f"{PATH.name} is left as it was:", *found, sep="\n  ")
        return 1
    PATH.write_text(json.dumps(computed, indent=2) + "\n")
    print(f"{PATH.name} holds order version {ORDER_VERSION}, planner version {PLANNER_VERSION}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
