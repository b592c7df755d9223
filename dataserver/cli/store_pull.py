"""`dataserver store pull`: bring a store from object storage to a local directory."""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from dataserver.cli.progress import Progress
from dataserver.cli.store_arguments import add_storage_options

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def add_pull_verb(verbs: "Subparsers") -> None:
    """Add `store pull`."""
    purpose = "bring a store from object storage to a local directory"
    parser = verbs.add_parser(
        "pull",
        help=purpose,
        description=f"{purpose[0].upper()}{purpose[1:]}. The directory gets its name when all of the store is there; "
        "a pull that was interrupted goes on where it stopped.",
    )
    parser.add_argument(
        "url", metavar="URL", help="s3://BUCKET/PREFIX, gs://…, az://…, hf://…, file://…, or of one object"
    )
    parser.add_argument("directory", type=Path, metavar="DIRECTORY", help="where to; not there yet")
    add_storage_options(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(handler=_pull)


def _pull(arguments: argparse.Namespace) -> int:
    from dataclasses import asdict

    from dataserver.storage import find_objects
    from dataserver.storage.pull import pull

    storage, infos = find_objects(arguments.url, dict(arguments.storage_option))
    with Progress("pulling") as progress:
        report = pull(storage, infos, arguments.directory, progress)
    if arguments.json:
        print(json.dumps({"url": arguments.url, "directory": str(arguments.directory), **asdict(report)}))
    else:
        kept = f", {report.kept:,} of them were there" if report.kept else ""
        print(f"pulled {report.files:,} files, {report.size:,} bytes{kept}, to {arguments.directory}")
    return 0
