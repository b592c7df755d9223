"""`dataserver run list | show | create | amend | rewind | delete`: runs of a server."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from dataserver.cli.lists import add_limit, newest_first, print_rest
from dataserver.cli.numbers import whole_number
from dataserver.cli.remote import add_server_arguments, connect, console, local_time, print_json
from dataserver.cli.spec_file import read_order, read_spec

if TYPE_CHECKING:
    from collections.abc import Callable

    from dataserver.run_spec import OrderSpec
    from dataserver.wire.mixture import MixtureInfo
    from dataserver.wire.runs import RunEventInfo, RunInfo, StageInfo
    from dataserver.wire.totals import FiguresInfo, TotalsInfo

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def add_parser(subparsers: "Subparsers") -> None:
    """Add `run` and its verbs."""
    parser = subparsers.add_parser("run", help="list, show, create, amend, rewind and delete runs of a server")
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    _add_verb(verbs, "list", _list, "list all runs")
    show = _add_verb(verbs, "show", _show, "show one run and its history", name=True)
    add_limit(show, "events")
    create = _add_verb(verbs, "create", _create, "create a run", name=True)
    create.add_argument("spec", type=Path, metavar="SPEC.toml", help="run spec, or a trainer's file with it in [run]")
    amend = _add_verb(verbs, "amend", _amend, "append a stage: another order from a step on", name=True)
    amend.add_argument(
        "--first-step",
        type=whole_number(2),
        required=True,
        metavar="N",
        help="first step of the stage; it lies beyond the last sealed one",
    )
    amend.add_argument(
        "--spec",
        type=Path,
        required=True,
        metavar="SPEC.toml",
        help="run spec, or a trainer's file, with the new order",
    )
    rewind = _add_verb(verbs, "rewind", _rewind, "move a run back, and fence its attempts", name=True)
    rewind.add_argument(
        "--version", type=whole_number(0), required=True, metavar="N", help="policy version; 0 for the beginning"
    )
    _add_verb(verbs, "delete", _delete, "delete a run and all that the ledger holds of it", name=True)


def _add_verb(
    verbs: "Subparsers",
    verb: str,
    handler: "Callable[[argparse.Namespace], int]",
    purpose: str,
    *,
    name: bool = False,
) -> argparse.ArgumentParser:
    parser = verbs.add_parser(verb, help=purpose, description=purpose)
    if name:
        parser.add_argument("name", metavar="NAME", help="the run's name")
    add_server_arguments(parser)
    parser.set_defaults(handler=handler)
    return parser


def _list(arguments: argparse.Namespace) -> int:
    with connect(arguments) as client:
        runs = client.list_runs()
    if arguments.json:
        print_json(runs)
        return 0
    from rich.table import Table

    table = Table("run", "state", "sealed", "consumed", "committed", "epoch", "position", "created", box=None)
    for run in runs:
        table.add_row(
            run.name,
            _state(run),
            str(run.sealed_step),
            str(run.consumed_step),
            str(run.committed.step),
            str(run.committed.epoch),
            f"{run.committed.position} of {run.epoch_samples}",
            local_time(run.create_time),
        )
    console().print(table)
    return 0


def _show(arguments: argparse.Namespace) -> int:
    with connect(arguments) as client:
        run = client.get_run(arguments.name)
        events = client.list_run_events(arguments.name)
    shown = newest_first(events, arguments.limit)
    if arguments.json:
        print_json({"run": run, "event_count": len(events), "events": shown})
    else:
        _print_run(run, shown, len(events))
    return 0


def _create(arguments: argparse.Namespace) -> int:
    spec = read_spec(arguments.spec)
    with connect(arguments) as client:
        run = client.create_run(arguments.name, spec)
    if arguments.json:
        print_json(run)
    else:
        print(f"run {run.name}: {run.epoch_samples} samples in an epoch, order {run.order_fingerprint}")
    return 0


def _amend(arguments: argparse.Namespace) -> int:
    order = read_order(arguments.spec)
    with connect(arguments) as client:
        run = client.amend_run(arguments.name, arguments.first_step, order)
    if arguments.json:
        print_json(run)
        return 0
    number = next(n for n, stage in enumerate(run.stages) if stage.first_step == arguments.first_step)
    print(f"run {run.name}: stage {number} begins with step {arguments.first_step}")
    return 0


def _rewind(arguments: argparse.Namespace) -> int:
    with connect(arguments) as client:
        rewound = client.rewind_run(arguments.name, arguments.version)
    if arguments.json:
        print_json(rewound)
    else:
        print(
            f"run {arguments.name} stands at step {rewound.committed.step}; "
            f"attempts up to {rewound.fenced_attempt} are over"
        )
    return 0


def _delete(arguments: argparse.Namespace) -> int:
    with connect(arguments) as client:
        client.delete_run(arguments.name)
    if arguments.json:
        print_json({"deleted": arguments.name})
    else:
        print(f"run {arguments.name} is deleted")
    return 0


def _state(run: "RunInfo") -> str:
    attempt = "no attempt" if run.attempt is None else f"attempt {run.attempt.number}"
    return f"{attempt}, ended" if run.ended else attempt


def _print_run(run: "RunInfo", events: "list[RunEventInfo]", of: int) -> None:
    from rich.table import Table

    facts = Table.grid(padding=(0, 2))
    for name, value in _facts(run):
        facts.add_row(name, value)
    history = Table("time", "event", "attempt", "step", "detail", box=None)
    for event in events:
        history.add_row(local_time(event.time), event.kind, str(event.attempt), str(event.step), event.detail)
    out = console()
    out.print(facts)
    out.print()
    out.print(history)
    print_rest(len(events), of, "events")


def _facts(run: "RunInfo") -> list[tuple[str, str]]:
    cursor, attempt = run.committed, run.attempt
    position = f"position {cursor.position} of {run.epoch_samples}"
    facts = [
        ("run", f"{run.name} ({_state(run)})"),
        ("created", local_time(run.create_time)),
        *(fact for number, stage in enumerate(run.stages) for fact in _stage(number, stage)),
        ("committed", f"step {cursor.step}: stage {cursor.stage}, epoch {cursor.epoch}, {position}"),
        ("sealed", f"step {run.sealed_step}"),
        ("consumed", f"step {run.consumed_step}"),
    ]
    if run.totals is not None:
        facts += _totals(run.totals)
    if run.mixture is not None:
        facts += _mixture(run.mixture)
    if attempt is not None:
        facts += [
            ("attempt", f"{attempt.number} of {attempt.holder}, from step {attempt.base.step}"),
            ("ranks", f"{attempt.world_size}, of which {attempt.dp_world_size} get different data"),
            ("acked", ", ".join(f"rank {rank}: {step}" for rank, step in enumerate(run.acked_steps))),
            ("lease", f"until {local_time(attempt.lease_expire_time)}"),
        ]
    batch = run.spec.batch if attempt is None else attempt.batch
    fields = ", ".join(f"{name} {value}" for name, value in batch.model_dump(mode="json", exclude_none=True).items())
    return [*facts, ("batch", fields)]


def _stage(number: int, stage: "StageInfo") -> list[tuple[str, str]]:
    return [
        (
            f"stage {number}",
            f"from step {stage.first_step}: {', '.join(source.store for source in stage.order.sources)}",
        ),
        ("", _order(stage.order)),
        ("", stage.order_fingerprint),
    ]


def _order(order: "OrderSpec") -> str:
    return f"{order.shuffle}, seed {order.seed}, max_length {order.max_length}, {order.long_rows}"


def _totals(totals: "TotalsInfo") -> list[tuple[str, str]]:
    served = (f"{each.store} {each.tokens} ({each.share:.2%})" for each in totals.stores)
    return [
        ("last step", _figures(totals.last)),
        (f"mean of {totals.steps}", _figures(totals.mean)),
        ("tokens", ", ".join(served)),
    ]


def _mixture(mixture: "MixtureInfo") -> list[tuple[str, str]]:
    """A line a source: its share and that of its weight, which differ by the bound at most."""
    lines = []
    for each in mixture.sources:
        line = f"{each.store} {each.share:.3%}, target {each.target_share:.3%} ± {each.share_error:.3%}"
        if each.target_token_share is not None:
            line += f"; of tokens {each.target_token_share:.2%} on average"
        lines.append(line)
    titles = [f"{mixture.draws} draws", *[""] * (len(lines) - 1)]
    return list(zip(titles, lines, strict=True))


def _figures(figures: "FiguresInfo") -> str:
    return (
        f"token efficiency {figures.token_efficiency:.3f}, rank imbalance {figures.rank_imbalance:.3f}, "
        f"round inflation {figures.round_inflation:.3f}"
    )
