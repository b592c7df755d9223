"""`serve DIRECTORY` runs a fake engine in the foreground; `restart DIRECTORY` ends the one there and starts another."""

import argparse
import os
from pathlib import Path

from orchestrator.testing.events import Events
from orchestrator.testing.fake_engine import FakeEngine
from orchestrator.testing.process import restart, write_state
from orchestrator.testing.server import FakeServer


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(prog="python -m orchestrator.testing", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    serve = commands.add_parser("serve")
    serve.add_argument("--port", type=int, default=0)
    serve.add_argument("--workers", type=int, default=1)
    serve.add_argument("--token-s", type=float, default=0.0)
    for command in (serve, commands.add_parser("restart")):
        command.add_argument("directory", type=Path)
    options = parser.parse_args()
    if options.command == "restart":
        restart(options.directory)
    else:
        _serve(options)


def _serve(options: argparse.Namespace) -> None:
    options.directory.mkdir(parents=True, exist_ok=True)
    engine = FakeEngine(
        die=lambda: os._exit(9),
        events=Events(options.directory / "events.jsonl"),
        workers=options.workers,
        token_s=options.token_s,
    )
    server = FakeServer(options.port, engine, None)
    write_state(
        options.directory, server.server_port, ["--workers", str(options.workers), "--token-s", str(options.token_s)]
    )
    server.serve_forever()


if __name__ == "__main__":
    main()
