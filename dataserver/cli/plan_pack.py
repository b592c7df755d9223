"""`dataserver plan pack` and `plan compare`: how a list of lengths would be packed. Needs no server and no store."""

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dataserver.cli.plan_lengths import (
    PackedStep,
    add_packing_arguments,
    batch_spec,
    cost_of_arguments,
    packed_steps,
    read_lengths,
)
from dataserver.run_spec import PackingPolicy

Subparsers = argparse._SubParsersAction


def add_packing_verbs(verbs: "Subparsers[argparse.ArgumentParser]") -> None:
    """Add `plan pack` and `plan compare`."""
    purpose = "pack a list of lengths into steps, rounds and ranks, and say how well"
    parser = verbs.add_parser("pack", help=purpose, description=purpose)
    add_packing_arguments(parser)
    parser.add_argument(
        "--policy", type=PackingPolicy, choices=list(PackingPolicy), default=PackingPolicy.BALANCED, help="how to pack"
    )
    parser.add_argument(
        "--png", type=Path, metavar="FILE", help="draw the first step: ranks by rounds, heights are costs"
    )
    parser.set_defaults(handler=_pack)

    purpose = "pack a list of lengths by every policy, and put the figures side by side"
    parser = verbs.add_parser("compare", help=purpose, description=purpose)
    add_packing_arguments(parser)
    parser.set_defaults(handler=_compare)


def _pack(arguments: argparse.Namespace) -> int:
    lengths = read_lengths(arguments.lengths)
    cost = cost_of_arguments(arguments)
    batch = batch_spec(arguments, arguments.policy, cost, int(lengths.sum()))
    steps = list(packed_steps(lengths, batch, arguments.world_size))
    if arguments.png is not None:
        from dataserver.cli.plan_picture import draw

        draw(steps[0].plan, cost, arguments.png)
    if arguments.json:
        print(json.dumps({"steps": [_step_as_json(step) for step in steps]}))
        return 0
    from dataserver.cli.plan_picture import text_picture

    for step in steps:
        plan = step.plan
        print(f"step {plan.step}: {len(plan.samples)} samples, {plan.token_count} tokens, {len(plan.rounds)} rounds")
        print(_figures_as_text(step))
    print(text_picture(steps[0].plan, cost))
    return 0


def _compare(arguments: argparse.Namespace) -> int:
    lengths = read_lengths(arguments.lengths)
    cost = cost_of_arguments(arguments)
    rows = []
    for policy in PackingPolicy:
        batch = batch_spec(arguments, policy, cost, int(lengths.sum()))
        began = time.process_time()
        steps = list(packed_steps(lengths, batch, arguments.world_size))
        rows.append(_summary(policy, steps, time.process_time() - began))
    if arguments.json:
        print(json.dumps({"policies": rows}))
        return 0
    from rich.table import Table

    from dataserver.cli.remote import console

    table = Table(*(name.replace("_", " ") for name in rows[0]), box=None)
    for row in rows:
        table.add_row(*(f"{value:.4f}" if isinstance(value, float) else str(value) for value in row.values()))
    console().print(table)
    return 0


def _summary(policy: PackingPolicy, steps: list[PackedStep], cpu_s: float) -> dict[str, Any]:
    """Means over the steps, of which the last may be short."""

    def mean(values: list[float]) -> float:
        return sum(values) / len(values)

    return {
        "policy": policy.value,
        "steps": len(steps),
        "rounds": sum(len(step.plan.rounds) for step in steps),
        "token_efficiency": mean([step.figures.token_efficiency for step in steps]),
        "at_most": mean([step.bounds.token_efficiency for step in steps]),
        "rank_imbalance": mean([step.figures.rank_imbalance for step in steps]),
        "round_inflation": mean([step.figures.round_inflation for step in steps]),
        "at_least": mean([step.bounds.round_inflation for step in steps]),
        "worst_step": max(step.figures.round_inflation for step in steps),
        "cpu_ms_a_step": cpu_s * 1e3 / len(steps),
    }


def _step_as_json(step: PackedStep) -> dict[str, Any]:
    """A step with its samples numbered as in the file of lengths."""
    plan = step.plan
    return {
        "step": plan.step,
        "rounds": [[plan.samples.row[bin_].tolist() for bin_ in group] for group in plan.rounds],
        "figures": asdict(step.figures),
        "bounds": asdict(step.bounds),
    }


def _figures_as_text(step: PackedStep) -> str:
    figures, bounds = step.figures, step.bounds
    return (
        f"  token efficiency {figures.token_efficiency:.4f} (at most {bounds.token_efficiency:.4f}), "
        f"rank imbalance {figures.rank_imbalance:.4f} (at least {bounds.rank_imbalance:.4f}), "
        f"round inflation {figures.round_inflation:.4f} (at least {bounds.round_inflation:.4f})"
    )
