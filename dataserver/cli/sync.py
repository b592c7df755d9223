"""`dataserver sync show | request`: which weights of a run are wanted, and which engines have got."""

import argparse
from typing import TYPE_CHECKING

from dataserver.cli.lists import add_limit, print_rest
from dataserver.cli.numbers import whole_number
from dataserver.cli.remote import add_server_arguments, connect, console, local_time, print_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dataserver.weight_sync import SyncAnswer, SyncState, WeightSync

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def add_parser(subparsers: "Subparsers") -> None:
    """Add `sync` and its verbs."""
    parser = subparsers.add_parser("sync", help="show which weights of a run are wanted, and ask for them")
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    purpose = "show who wants weights of a run, who takes them, and what became of the newest syncs"
    show = verbs.add_parser("show", help=purpose, description=purpose)
    show.add_argument("name", metavar="RUN", help="the run's name")
    add_limit(show, "syncs")
    add_server_arguments(show)
    show.set_defaults(handler=_show)
    purpose = "ask for the weights of one version of a run, or of its last"
    request = verbs.add_parser("request", help=purpose, description=purpose)
    request.add_argument("name", metavar="RUN", help="the run's name")
    wanted = request.add_mutually_exclusive_group(required=True)
    wanted.add_argument("--version", type=whole_number(0), metavar="N", help="policy version")
    wanted.add_argument("--last", action="store_true", help="the version that the run ends with")
    request.add_argument(
        "--at-or-after",
        action="store_true",
        help="where that version is sealed already, ask for the earliest that is still possible",
    )
    add_server_arguments(request)
    request.set_defaults(handler=_request)


def _show(arguments: argparse.Namespace) -> int:
    with connect(arguments) as client:
        state = client.sync_state(arguments.name)
    if arguments.json:
        print_json(state)
        return 0
    _print(state, state.syncs[: arguments.limit])
    print_rest(min(len(state.syncs), arguments.limit), len(state.syncs), "syncs")
    return 0


def _request(arguments: argparse.Namespace) -> int:
    with connect(arguments) as client:
        answer = client.request_sync(arguments.name, arguments.version, at_or_after=arguments.at_or_after)
    if arguments.json:
        print_json(answer)
    else:
        print(f"run {arguments.name}: {_told(answer)}")
    return 0


def _told(answer: "SyncAnswer") -> str:
    which = "the last version" if answer.version is None else f"version {answer.version}"
    if answer.outcome == "landed":
        return f"{which} has landed: engines have served it"
    if answer.outcome == "accepted":
        return f"{which} is asked for"
    return f"that version is sealed and asks for no sync; the earliest that can be asked for is {which}"


def _print(state: "SyncState", syncs: "Sequence[WeightSync]") -> None:
    from rich.table import Table

    facts = Table.grid(padding=(0, 2))
    for name, value in _facts(state):
        facts.add_row(name, value)
    out = console()
    out.print(facts)
    if not syncs:
        return
    table = Table("time", "version", "outcome", "seconds", "stall", "engines", "detail", box=None)
    for sync in syncs:
        table.add_row(
            local_time(sync.report_time),
            str(sync.version),
            sync.outcome,
            f"{sync.seconds:.2f}",
            f"{sync.stall_seconds:.2f}",
            ", ".join(sync.engines),
            sync.detail,
        )
    out.print()
    out.print(table)


def _facts(state: "SyncState") -> list[tuple[str, str]]:
    wanted = [*map(str, state.requested), *(["last"] if state.last_requested else [])]
    steps = f"{state.sealed_step}, consumed {state.consumed_step}"
    if state.last_sealed:
        steps += ", ended" if state.ended else ", no step follows"
    holds = [f"{hold.hold_id} until {local_time(hold.expire_time)}" for hold in state.holds]
    lease = state.lease
    facts = [
        ("run", f"{state.run} ({f'attempt {state.attempt}' if state.attempt else 'no attempt'})"),
        ("sealed", steps),
        ("requested", ", ".join(wanted) or "nothing"),
        ("held by", ", ".join(holds) or "nobody"),
        ("landed", "nothing" if state.landed is None else f"version {state.landed}"),
        (
            "orchestrator",
            "none"
            if lease is None
            else f"{lease.holder} at {lease.orchestrator.address}, epoch {lease.orchestrator.epoch}, "
            f"until {local_time(lease.expire_time)}",
        ),
    ]
    if state.shutdown_deadline is not None:
        facts.append(("offered until", local_time(state.shutdown_deadline)))
    return facts
