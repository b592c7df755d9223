"""`dataserver store check`: admit a store on disk and report on it, or say why it is refused."""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from dataserver.cli.numbers import whole_number
from dataserver.cli.progress import Progress
from dataserver.cli.store_arguments import add_store_arguments, open_named
from dataserver.errors import StoreRefusedError
from dataserver.run_spec import LongRows

if TYPE_CHECKING:
    from dataserver.wire.store_info import StoreInfo

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def add_check_verb(verbs: "Subparsers") -> None:
    """Add `store check`."""
    purpose = "admit a store, or say why it is refused"
    parser = verbs.add_parser("check", help=purpose, description=purpose)
    add_store_arguments(parser)
    parser.add_argument(
        "--long-rows",
        type=LongRows,
        choices=list(LongRows),
        default=LongRows.TRUNCATE,
        help="what happens to rows above --max-length; `split` only with --loss-mask all",
    )
    parser.add_argument("--vocab-size", type=whole_number(1), metavar="V", help="refuse a token at or above V")
    add_output_arguments(parser)
    parser.set_defaults(handler=_check)


def add_output_arguments(parser: argparse.ArgumentParser) -> None:
    """Add how a report is given."""
    parser.add_argument("--histogram", type=Path, metavar="FILE.png", help="draw the lengths of the rows")
    parser.add_argument("--json", action="store_true", help="print JSON")


def _check(arguments: argparse.Namespace) -> int:
    try:
        store = _checked(arguments)
    except StoreRefusedError as error:
        if arguments.json:
            refusal = {"verdict": "refused", "path": str(arguments.path), "error": error.message, **error.details}
            print(json.dumps(refusal))
        raise
    if arguments.histogram is not None:
        from dataserver.cli.store_histogram import draw_histogram

        draw_histogram(store, arguments.histogram)
    if arguments.json:
        from dataclasses import asdict

        print(json.dumps({"verdict": "admitted", "path": store.name, **asdict(store)}))
    else:
        from dataserver.cli.store_report import report_text

        print(f"admitted     {store.name}\n{report_text(store)}")
    return 0


def _checked(arguments: argparse.Namespace) -> "StoreInfo":
    from dataserver.stores.description import describe_store
    from dataserver.stores.selection import check_usable

    with Progress("checking") as progress:
        store = open_named(arguments, progress)
    with store:
        if arguments.vocab_size is not None:
            store.check_vocab(arguments.vocab_size)
        max_length = arguments.max_length or max(store.longest_row, 1)
        check_usable(store.path, max_length, store.figures(max_length, arguments.long_rows))
        return describe_store(str(store.path), store, max_length, arguments.long_rows)
