"""What the commands against a server share: how it is reached, and how answers are printed.

Whatever is slow to import (gRPC, pydantic, rich) is imported where it is used: `--help` and the
offline commands come through here too.
"""

import argparse
import json
import logging
import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rich.console import Console

    from dataserver.client import DataClient

DEFAULT_ENDPOINT: Final = "127.0.0.1:50051"

# A person waits at the terminal: long enough for a server that restarts, no longer.
_PATIENCE_S: Final = 5.0

# Where no terminal says how wide it is.
_PIPE_WIDTH: Final = 160


def add_server_arguments(parser: argparse.ArgumentParser) -> None:
    """Add how a server is reached, and `--json`."""
    parser.add_argument(
        "--endpoint",
        default=DEFAULT_ENDPOINT,
        metavar="HOST:PORT[,HOST:PORT...]",
        help=f"data servers (default: {DEFAULT_ENDPOINT})",
    )
    parser.add_argument("--token-file", type=Path, metavar="FILE", help="file that holds the bearer token")
    parser.add_argument("--ca", type=Path, metavar="FILE", help="PEM file with the CA of the servers' certificates")
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")


def connect(arguments: argparse.Namespace) -> "DataClient":
    """A client of the server that the arguments name."""
    from dataserver.client import DataClient
    from dataserver.hosting.credentials import read_token

    # What was waited for stands in the error, and errors take one line: no log on stderr beside it.
    logging.getLogger("dataserver.client").addHandler(logging.NullHandler())
    # Rendering takes long, and that somebody wants to watch.
    logging.getLogger("dataserver.client.rendering").addHandler(logging.StreamHandler())
    token = None if arguments.token_file is None else read_token(arguments.token_file)
    return DataClient(arguments.endpoint, token=token, ca=arguments.ca, patience_s=_PATIENCE_S)


def console() -> "Console":
    """Where tables go."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH, highlight=False, markup=False)


def print_json(value: object) -> None:
    """Print a value of the wire as JSON, its fields by their names."""
    print(json.dumps(_plain(value), indent=2))


def local_time(seconds: float) -> str:
    """A time since 1970 in local time, to the second."""
    return datetime.fromtimestamp(seconds).astimezone().isoformat(sep=" ", timespec="seconds")


def _plain(value: object) -> Any:  # noqa: ANN401  # whatever JSON can say
    from pydantic import BaseModel

    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
