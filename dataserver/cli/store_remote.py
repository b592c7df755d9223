"""`dataserver store report`: the report of `store check`, of a store that a server serves."""

import argparse
from typing import TYPE_CHECKING

from dataserver.cli.numbers import whole_number
from dataserver.cli.remote import add_server_arguments, connect, print_json

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def add_report_verb(verbs: "Subparsers") -> None:
    """Add `store report`."""
    purpose = "report on a store that a server serves"
    parser = verbs.add_parser("report", help=purpose, description=purpose)
    parser.add_argument("name", metavar="NAME", help="the store's name on the server")
    parser.add_argument(
        "--max-length", type=whole_number(2), metavar="N", help="longest sample served; default: the longest row"
    )
    add_server_arguments(parser)
    parser.set_defaults(handler=_report)


def _report(arguments: argparse.Namespace) -> int:
    with connect(arguments) as client:
        store = client.get_store(arguments.name, max_length=arguments.max_length)
    if arguments.json:
        print_json(store)
    else:
        from dataserver.cli.store_report import report_text

        print(f"store        {store.name}\n{report_text(store)}")
    return 0
