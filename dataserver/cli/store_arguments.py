"""What the commands on stores share: which store, and how it is read."""

import argparse

from dataserver.cli.numbers import whole_number
from dataserver.stores import LossMask


def add_store_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the path of a store, and what decides which of its rows are served."""
    parser.add_argument("path", metavar="PATH", help="a file, a directory, or a URL of either")
    parser.add_argument("--split", metavar="NAME", help="the split to read of a saved DatasetDict")
    parser.add_argument(
        "--max-length", type=whole_number(1), metavar="N", help="longest sample served; default: the longest row"
    )
    parser.add_argument(
        "--loss-mask",
        type=LossMask,
        choices=list(LossMask),
        default=LossMask.COLUMN,
        help="where the loss mask comes from: its column, or `all` tokens are targets",
    )
