"""Long lists of what happened: the newest entries first, and how many there are."""

import argparse
from collections.abc import Sequence
from typing import Final, TypeVar

from dataserver.cli.numbers import whole_number
from dataserver.cli.remote import console

ItemT = TypeVar("ItemT")

# About a screen.
_SHOWN: Final = 20


def add_limit(parser: argparse.ArgumentParser, what: str) -> None:
    """Add `--limit`."""
    parser.add_argument(
        "--limit",
        type=whole_number(1),
        default=_SHOWN,
        metavar="N",
        help=f"show at most the N newest {what} (default: {_SHOWN})",
    )


def newest_first(items: Sequence[ItemT], limit: int) -> list[ItemT]:
    """The last `limit` of what came in the order of time."""
    return list(items[::-1][:limit])


def print_rest(shown: int, of: int, what: str) -> None:
    """Say how many entries there are, where not all are shown."""
    if shown < of:
        console().print(f"the newest {shown} of {of} {what}; --limit {of} shows all")
