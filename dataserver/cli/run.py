"""`dataserver run list | show | create | rewind | delete`: runs of a server."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dataserver.cli.numbers import whole_number
from dataserver.cli.remote import add_server_arguments, connect, console, local_time, print_json
from dataserver.errors import InvalidSpecError

if TYPE_CHECKING:
    from collections.abc import Callable

    from dataserver.run_spec import RunSpec
    from dataserver.wire.runs import RunEventInfo, RunInfo
    from dataserver.wire.totals import FiguresInfo, TotalsInfo

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def add_parser(subparsers: "Subparsers") -> None:
    """Add `run` and its verbs."""
    parser = subparsers.add_parser("run", help="list, show, create, rewind and delete runs of a server")
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    _add_verb(verbs, "list", _list, "list all runs")
    _add_verb(verbs, "show", _show, "show one run and its history", name=True)
    create = _add_verb(verbs, "create", _create, "create a run", name=True)
    create.add_argument("spec", type=Path, metavar="SPEC.toml", help="run spec, or a trainer's file with it in [run]")
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
    if arguments.json:
        print_json({"run": run, "events": events})
    else:
        _print_run(run, events)
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


def read_spec(path: Path) -> "RunSpec":
    """Read a run spec: the file as a whole, or a trainer's table `[run]`, its name aside.

    Raises `InvalidSpecError` with file and field.
    """
    import tomllib

    from pydantic import ValidationError

    from dataserver.run_spec import RunSpec
    from dataserver.wire.messages import spec_error

    try:
        document = tomllib.loads(path.read_text())
    except OSError as error:
        raise InvalidSpecError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise InvalidSpecError(f"{path} is not TOML: {error}") from error
    table = document.get("run", document)
    fields: dict[str, Any] = table if isinstance(table, dict) else {}
    try:
        return RunSpec.model_validate({name: value for name, value in fields.items() if name != "name"})
    except ValidationError as error:
        raise InvalidSpecError(f"{path}: {spec_error(error).message}") from error


def _state(run: "RunInfo") -> str:
    attempt = "no attempt" if run.attempt is None else f"attempt {run.attempt.number}"
    return f"{attempt}, ended" if run.ended else attempt


def _print_run(run: "RunInfo", events: "list[RunEventInfo]") -> None:
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


def _facts(run: "RunInfo") -> list[tuple[str, str]]:
    order, cursor, attempt = run.spec.order, run.committed, run.attempt
    facts = [
        ("run", f"{run.name} ({_state(run)})"),
        ("created", local_time(run.create_time)),
        ("stores", ", ".join(source.store for source in order.sources)),
        ("order", f"{order.shuffle}, seed {order.seed}, max_length {order.max_length}, {order.long_rows}"),
        ("fingerprint", run.order_fingerprint),
        ("committed", f"step {cursor.step}: epoch {cursor.epoch}, position {cursor.position} of {run.epoch_samples}"),
        ("sealed", f"step {run.sealed_step}"),
        ("consumed", f"step {run.consumed_step}"),
    ]
    if run.totals is not None:
        facts += _totals(run.totals)
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


def _totals(totals: "TotalsInfo") -> list[tuple[str, str]]:
    served = (f"{each.store} {each.tokens} ({each.share:.2%})" for each in totals.stores)
    return [
        ("last step", _figures(totals.last)),
        (f"mean of {totals.steps}", _figures(totals.mean)),
        ("tokens", ", ".join(served)),
    ]


def _figures(figures: "FiguresInfo") -> str:
    return (
        f"token efficiency {figures.token_efficiency:.3f}, rank max/mean {figures.rank_imbalance:.3f}, "
        f"round inflation {figures.round_inflation:.3f}"
    )
