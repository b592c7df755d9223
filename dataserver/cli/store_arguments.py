"""What the commands on stores share: which store, and how it is read."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from dataserver.cli.numbers import whole_number
from dataserver.stores import LossMask

if TYPE_CHECKING:
    from dataserver.cli.progress import Progress
    from dataserver.stores import Store


def add_store_arguments(parser: argparse.ArgumentParser) -> None:
    """Add which store, and what decides which of its rows are served."""
    add_source_arguments(parser)
    parser.add_argument(
        "--max-length", type=whole_number(1), metavar="N", help="longest sample served; default: the longest row"
    )


def add_source_arguments(parser: argparse.ArgumentParser) -> None:
    """Add which store, and how it is read."""
    parser.add_argument("path", metavar="PATH", help="a file, a directory, or a URL of either")
    parser.add_argument("--split", metavar="NAME", help="the split to read of a saved DatasetDict")
    parser.add_argument(
        "--loss-mask",
        type=LossMask,
        choices=list(LossMask),
        default=LossMask.COLUMN,
        help="where the loss mask comes from: its column, or `all` tokens are targets",
    )
    parser.add_argument(
        "--index-dir",
        type=Path,
        metavar="DIRECTORY",
        help="where manifests and indexes are kept; default: ~/.cache/dataserver/index",
    )
    add_storage_options(parser)


def add_storage_options(parser: argparse.ArgumentParser) -> None:
    """Add how a storage behind a URL is reached."""
    parser.add_argument(
        "--storage-option",
        type=_storage_option,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="how to reach the storage: endpoint=URL, region=NAME, …; credentials come from the environment",
    )


def open_named(arguments: argparse.Namespace, progress: "Progress") -> "Store":
    """Open the store that the arguments name; raises as `open_store` does."""
    from dataserver.stores import open_store

    return open_store(
        arguments.path,
        split=arguments.split,
        loss_mask=arguments.loss_mask,
        index_dir=arguments.index_dir,
        progress=progress,
        storage_options=dict(arguments.storage_option),
    )


def _storage_option(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value
