"""`dataserver store index`: check every row of a store ahead of time, so that a server opens it at once.

Killed, it goes on at the shard where it was.
"""

import argparse
from typing import TYPE_CHECKING

from dataserver.cli.progress import Progress
from dataserver.cli.store_arguments import add_source_arguments, open_named

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def add_index_verb(verbs: "Subparsers") -> None:
    """Add `store index`."""
    purpose = "check a store ahead of time, so that a server opens it at once; goes on where it was stopped"
    parser = verbs.add_parser("index", help=purpose, description=purpose)
    add_source_arguments(parser)
    parser.set_defaults(handler=_index)


def _index(arguments: argparse.Namespace) -> int:
    with Progress("indexing") as progress:
        store = open_named(arguments, progress)
    with store:
        print(f"indexed      {arguments.path}: {store.rows:,} rows, {store.tokens:,} tokens, in {store.index_dir}")
        print(f"fingerprint  {store.fingerprint}")
    return 0
