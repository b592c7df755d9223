"""`dataserver store show`: rows of a store on disk as people read them, targets in colour."""

import argparse
import sys
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from dataserver.cli.progress import Progress
from dataserver.cli.store_arguments import add_store_arguments, open_named
from dataserver.errors import OutOfRangeError

if TYPE_CHECKING:
    from rich.text import Text

    from dataserver.render.view import RowView
    from dataserver.stores import Store

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

# Rows that are shown where none is asked for.
_SHOWN = 3


def add_show_verb(verbs: "Subparsers") -> None:
    """Add `store show`."""
    purpose = "show rows as people read them: words, control tokens, and what is a target"
    parser = verbs.add_parser("show", help=purpose, description=purpose)
    add_store_arguments(parser)
    parser.add_argument("--tokenizer", type=Path, required=True, metavar="DIR", help="directory of the tokenizer")
    parser.add_argument(
        "--row", type=int, action="append", metavar="N", help="row to show; again for more (default: the first 3)"
    )
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page instead")
    parser.set_defaults(handler=_show)


def _show(arguments: argparse.Namespace) -> int:
    from dataserver.render.tokenizer import load_tokenizer

    tokenizer = load_tokenizer(arguments.tokenizer)
    with Progress("checking") as progress:
        store = open_named(arguments, progress)
    with store:
        rows = range(min(_SHOWN, store.rows)) if arguments.row is None else arguments.row
        views = [_view(store, tokenizer, row, arguments.max_length) for row in rows]
    if arguments.html is not None:
        from dataserver.render.view import page

        arguments.html.write_text(page(str(arguments.path), views), encoding="utf-8")
        print(arguments.html)
    else:
        _print(views)
    return 0


def _view(store: "Store", tokenizer: object, row: int, max_length: int | None) -> "RowView":
    from dataserver.render.view import view_row

    if not 0 <= row < store.rows:
        raise OutOfRangeError(f"There is no row {row} in '{store.path}', which has {store.rows} rows.")
    found = store.read_rows([row], max_length=max_length)[0]
    [reason] = store.reasons(row, row + 1, max_length or max(store.longest_row, 1))
    return view_row(tokenizer, row, found.input_ids, found.loss_mask, reason)


def _print(views: "list[RowView]") -> None:
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    marked = not console.is_terminal
    for view in views:
        console.print(view.title, style="bold")
        console.print(_text(view, marked=marked))
        if view is not views[-1]:
            console.print()
    sys.stdout.flush()


def _text(view: "RowView", *, marked: bool) -> "Text":
    """Colours on a terminal; where there are none, each stretch of targets stands between marks."""
    from rich.text import Text

    from dataserver.render.view import visible

    text = Text()
    for is_target, runs in groupby(view.runs, lambda run: run.is_target):
        text.append("⟦" * (marked and is_target))
        for run in runs:
            colour = "black on green" if is_target else "cyan" if run.is_control else "dim"
            text.append(visible(run), style=f"bold {colour}" if run.is_control else colour)
        text.append("⟧" * (marked and is_target))
    return text
