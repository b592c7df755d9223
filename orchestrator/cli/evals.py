"""`orchestrator evals list | export | plot`: what evals came to, from the database that holds it.

The orchestrator need not run: results stay.
"""

import argparse
import json
import sys
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dataserver.errors import InvalidConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from orchestrator.results import EvalResult, ResultsTable

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

SQLITE: Final = "sqlite:///"
DEFAULT_DATABASE: Final = f"{SQLITE}evals.db"

# Where no terminal says how wide it is.
PIPE_WIDTH: Final = 160


def parser() -> argparse.ArgumentParser:
    """`evals` and its verbs."""
    whole = argparse.ArgumentParser(prog="orchestrator evals", description="what evals came to", allow_abbrev=False)
    verbs = whole.add_subparsers(metavar="VERB", required=True)
    shown = _add_verb(verbs, "list", _list, "list results, the newest first")
    shown.add_argument("--limit", type=int, default=20, metavar="N", help="show at most N (default: 20)")
    shown.add_argument("--json", action="store_true", help="print JSON, for programs")
    export = _add_verb(verbs, "export", _export, "write results to a file")
    export.add_argument(
        "file",
        type=Path,
        metavar="FILE",
        help="a table in FILE.csv, objects in FILE.json, or every answer as a line of FILE.jsonl",
    )
    plot = _add_verb(verbs, "plot", _plot, "draw a figure over the versions, as PNG")
    plot.add_argument("file", type=Path, metavar="FILE.png", help="the picture")
    plot.add_argument("--figure", default="mean", metavar="NAME", help="what is drawn (default: mean)")
    return whole


def run(arguments: "Sequence[str]") -> int:
    """Run one verb; returns the exit status. Raises `DataServerError`, `OSError`."""
    options = parser().parse_args(arguments)
    handler: Callable[[argparse.Namespace], None] = options.handler
    handler(options)
    return 0


def _add_verb(
    verbs: "Subparsers", verb: str, handler: "Callable[[argparse.Namespace], None]", purpose: str
) -> argparse.ArgumentParser:
    added = verbs.add_parser(verb, help=purpose, description=purpose)
    added.add_argument(
        "--database",
        default=DEFAULT_DATABASE,
        metavar="URL",
        help=f"`results.database` of the orchestrator's configuration (default: {DEFAULT_DATABASE})",
    )
    added.add_argument("--run", metavar="NAME", help="only results of this run")
    added.add_argument("--name", metavar="NAME", help="only results of this eval")
    added.set_defaults(handler=handler)
    return added


def _list(options: argparse.Namespace) -> None:
    from orchestrator.results.export import plain_result

    with _chosen(options) as (_, results):
        newest = results[::-1][: options.limit]
    if options.json:
        print(json.dumps([plain_result(each) for each in newest], indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("eval", "state", "mean", "scored", "versions", "seconds", "ended", "detail", box=None)
    for each in newest:
        table.add_row(*_row(each))
    console = Console(width=None if sys.stdout.isatty() else PIPE_WIDTH, highlight=False, markup=False)
    console.print(table)
    if len(newest) < len(results):
        console.print(f"the newest {len(newest)} of {len(results)} results; --limit {len(results)} shows all")


def _row(result: "EvalResult") -> list[str]:
    from orchestrator.results.export import plain_versions

    versions = list(plain_versions(result.version_tokens))
    spread = versions[0] if len(versions) == 1 else f"{versions[0]} … {versions[-1]}" if versions else ""
    ended = datetime.fromtimestamp(result.end_time or 0.0).astimezone()
    return [
        result.eval_id,
        result.state.value,
        f"{result.figures['mean']:.4f}" if "mean" in result.figures else "",
        f"{result.scored} of {result.samples}",
        spread,
        f"{result.figures['seconds']:.1f}" if "seconds" in result.figures else "",
        ended.isoformat(sep=" ", timespec="seconds"),
        result.detail,
    ]


def _export(options: argparse.Namespace) -> None:
    from orchestrator.results.export import plain_answer, write_csv, write_json

    kind = options.file.suffix
    if kind not in {".csv", ".json", ".jsonl"}:
        raise InvalidConfigError(f"{options.file}: name a file that ends in .csv, .json or .jsonl")
    with _chosen(options) as (table, results), options.file.open("w", newline="") as out:
        if kind == ".csv":
            write_csv(results, out)
        elif kind == ".json":
            write_json(results, out)
        else:
            for result in results:
                for answer in table.answers_of(result):
                    out.write(json.dumps({"eval_id": result.eval_id, **plain_answer(answer)}) + "\n")
    print(f"{len(results)} results in {options.file}")


def _plot(options: argparse.Namespace) -> None:
    from orchestrator.results.curves import draw_curves

    with _chosen(options) as (_, results):
        draw_curves(results, options.file, figure=options.figure)
    print(f"{options.figure} of {len(results)} results in {options.file}")


@contextmanager
def _chosen(options: argparse.Namespace) -> "Iterator[tuple[ResultsTable, list[EvalResult]]]":
    """The table that the options name, and the results that they choose; a file is never created here."""
    from orchestrator.results import open_results

    url: str = options.database
    if url.startswith(SQLITE) and not Path(url.removeprefix(SQLITE)).exists():
        raise InvalidConfigError(f"there are no results in {url}: give --database, as in results.database")
    table = open_results(url)
    try:
        yield table, table.find(run=options.run, name=options.name)
    finally:
        table.close()
