"""`dataserver plan`: its verbs, and `show`: which samples a step holds, on which rank, in which round."""

import argparse
from typing import TYPE_CHECKING, Final

from dataserver.cli.numbers import MAX_COUNT, MAX_RANKS, whole_number
from dataserver.cli.plan_cost import add_cost_verb
from dataserver.cli.plan_estimate import add_estimate_verb
from dataserver.cli.plan_pack import add_packing_verbs
from dataserver.cli.remote import add_server_arguments, connect, console, print_json
from dataserver.errors import InvalidRequestError

if TYPE_CHECKING:
    from rich.console import Console

    from dataserver.wire.runs import PlannedMicroBatch, StepDescription

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

# More samples than this in a cell say less than their number does; `--json` has them all.
_SAMPLES_IN_A_CELL: Final = 8


def add_parser(subparsers: "Subparsers") -> None:
    """Add `plan` and its verbs."""
    parser = subparsers.add_parser("plan", help="show the samples of steps, by rank and round")
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    purpose = "show which samples steps hold, on which rank, in which round, and how well they are packed"
    show = verbs.add_parser("show", help=purpose, description=purpose)
    show.add_argument("name", metavar="RUN", help="the run's name")
    show.add_argument("--steps", required=True, metavar="A:B", help="steps A to before B")
    show.add_argument(
        "--world-size", type=whole_number(1, MAX_RANKS), metavar="R", help="data-parallel ranks (default: as sealed)"
    )
    add_server_arguments(show)
    show.set_defaults(handler=_show)
    add_packing_verbs(verbs)
    add_estimate_verb(verbs)
    add_cost_verb(verbs)


def _show(arguments: argparse.Namespace) -> int:
    first, end = _parse_steps(arguments.steps)
    with connect(arguments) as client:
        plans = (
            client.describe_step(arguments.name, step, dp_world_size=arguments.world_size) for step in range(first, end)
        )
        if arguments.json:
            print_json(list(plans))
            return 0
        out = console()
        for plan in plans:
            _print(out, plan)
    return 0


def _parse_steps(text: str) -> tuple[int, int]:
    first, colon, end = text.partition(":")
    if not (colon and first.isascii() and first.isdigit() and end.isascii() and end.isdigit()):
        raise InvalidRequestError(f"--steps {text}: use A:B, two step numbers")
    # Python reads no number of thousands of digits.
    if max(len(first), len(end)) > len(str(MAX_COUNT)) or not 1 <= int(first) < int(end) <= MAX_COUNT:
        raise InvalidRequestError(
            f"--steps {text}: steps count from 1, and B is the step after the last, at most 2^63 - 1"
        )
    return int(first), int(end)


def _print(out: "Console", plan: "StepDescription") -> None:
    from rich.table import Table

    sealed = f"sealed by attempt {plan.attempt}" if plan.attempt else "not sealed"
    flags = [name for name, is_set in (("sync_weights", plan.sync_weights), ("last", plan.last)) if is_set]
    out.print(
        f"step {plan.step} ({', '.join([sealed, *flags])}): stage {plan.end.stage}, {plan.sample_count} samples, "
        f"{plan.token_count} tokens, "
        f"{plan.target_count} targets, plan {plan.plan_digest}"
    )
    out.print(
        f"token efficiency {plan.figures.token_efficiency:.3f}, rank imbalance {plan.figures.rank_imbalance:.3f}, "
        f"round inflation {plan.figures.round_inflation:.3f}"
    )
    out.print("tokens by store: " + _store_tokens(plan))
    cells = {(planned.round, planned.dp_rank): _cell(planned) for planned in plan.micro_batches}
    table = Table("round", *(f"rank {rank}" for rank in range(plan.dp_world_size)), box=None)
    image_rounds = {planned.round for planned in plan.micro_batches if planned.is_image_round}
    for round_index in sorted({planned.round for planned in plan.micro_batches}):
        ranks = range(plan.dp_world_size)
        name = f"{round_index} (images)" if round_index in image_rounds else str(round_index)
        table.add_row(name, *(cells.get((round_index, rank), "") for rank in ranks))
    out.print(table)
    out.print()


def _store_tokens(plan: "StepDescription") -> str:
    tokens: dict[str, int] = {}
    for planned in plan.micro_batches:
        for sample in planned.samples:
            tokens[sample.store] = tokens.get(sample.store, 0) + sample.length
    return ", ".join(f"{store} {count} ({count / plan.token_count:.1%})" for store, count in sorted(tokens.items()))


def _cell(planned: "PlannedMicroBatch") -> str:
    if not planned.samples:
        return "empty"
    tokens = sum(sample.length for sample in planned.samples)
    shown = [f"{sample.store}:{sample.row} ({sample.length})" for sample in planned.samples[:_SAMPLES_IN_A_CELL]]
    more = len(planned.samples) - len(shown)
    return f"{tokens} tokens: " + ", ".join(shown) + (f" and {more} more" if more else "")
