"""`dataserver cursor show`: where a run stands, or stood."""

import argparse
from typing import TYPE_CHECKING

from dataserver.cli.lists import add_limit, newest_first, print_rest
from dataserver.cli.numbers import whole_number
from dataserver.cli.remote import add_server_arguments, connect, console, local_time, print_json

if TYPE_CHECKING:
    from dataserver.wire.runs import CommitInfo, CursorInfo

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def add_parser(subparsers: "Subparsers") -> None:
    """Add `cursor` and its verb."""
    parser = subparsers.add_parser("cursor", help="show where a run stands")
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    purpose = "show the committed cursor of a run and its other commits, or the cursor of one version"
    show = verbs.add_parser("show", help=purpose, description=purpose)
    show.add_argument("name", metavar="RUN", help="the run's name")
    show.add_argument(
        "--version", type=whole_number(0), metavar="N", help="policy version (default: the committed one)"
    )
    add_limit(show, "commits")
    add_server_arguments(show)
    show.set_defaults(handler=_show)


def _show(arguments: argparse.Namespace) -> int:
    with connect(arguments) as client:
        found = client.get_cursor(arguments.name, arguments.version)
        commits = client.list_cursors(arguments.name) if arguments.version is None else []
    shown = newest_first(commits, arguments.limit)
    if not arguments.json:
        _print(found, shown)
        print_rest(len(shown), len(commits), "commits")
    elif arguments.version is None:
        whole = {"cursor": found.cursor, "checkpoint_uri": found.checkpoint_uri}
        print_json(whole | {"commit_count": len(commits), "commits": shown})
    else:
        print_json(found)
    return 0


def _print(found: "CursorInfo", commits: "list[CommitInfo]") -> None:
    from rich.table import Table

    cursor, window = found.cursor, found.cursor.window
    facts = Table.grid(padding=(0, 2))
    facts.add_row("step", str(cursor.step))
    facts.add_row("stage", str(cursor.stage))
    facts.add_row("epoch", str(cursor.epoch))
    facts.add_row("position", str(cursor.position))
    if cursor.source_positions:
        facts.add_row("sources", ", ".join(map(str, cursor.source_positions)))
    if window is not None:
        facts.add_row("window", f"{window.steps_done} of {window.steps} steps done, {window.samples} samples")
    facts.add_row("fingerprint", cursor.order_fingerprint)
    facts.add_row("checkpoint", found.checkpoint_uri or "none")
    out = console()
    out.print(facts)
    if commits:
        table = Table("step", "epoch", "position", "attempt", "time", "checkpoint", box=None)
        for commit in commits:
            at = commit.cursor
            numbers = map(str, (at.step, at.epoch, at.position, commit.attempt))
            table.add_row(*numbers, local_time(commit.time), commit.checkpoint_uri)
        out.print()
        out.print(table)
