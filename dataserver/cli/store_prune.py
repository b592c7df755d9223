"""`dataserver store prune`: remove from an index directory what nobody opened for long."""

import argparse
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from dataserver.cli.numbers import whole_number

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

_DAY_S = 86_400
_DEFAULT_DAYS = 30


def add_prune_verb(verbs: "Subparsers") -> None:
    """Add `store prune`."""
    purpose = "remove from an index directory what nobody opened for long"
    parser = verbs.add_parser(
        "prune",
        help=purpose,
        description=f"{purpose[0].upper()}{purpose[1:]}. It is derived data: what is missed is built anew. Rendered "
        "stores stay.",
    )
    parser.add_argument(
        "--index-dir",
        type=Path,
        metavar="DIRECTORY",
        help="where manifests and indexes are kept; default: ~/.cache/dataserver/index",
    )
    parser.add_argument(
        "--unused-days",
        type=whole_number(0),
        default=_DEFAULT_DAYS,
        metavar="N",
        help=f"what was not opened for so many days goes; default: {_DEFAULT_DAYS}",
    )
    parser.set_defaults(handler=_prune)


def _prune(arguments: argparse.Namespace) -> int:
    from dataserver.cli.store_report import bytes_text
    from dataserver.stores import default_index_dir
    from dataserver.stores.index_use import prune

    root = arguments.index_dir or default_index_dir()
    removed, left = prune(root, older_than=time.time() - arguments.unused_days * _DAY_S)
    for entry in removed:
        opened = datetime.fromtimestamp(entry.opened, UTC).date().isoformat()
        print(f"removed  {entry.path.relative_to(root)}: {bytes_text(entry.size)}, last opened on {opened}")
    print(f"removed  {len(removed):,} entries, {bytes_text(sum(entry.size for entry in removed))}")
    print(f"left     {len(left):,} entries, {bytes_text(sum(entry.size for entry in left))}, in {root}")
    return 0
