"""The command `dataserver`: one subcommand per module, and only the one that runs is imported.

Exit status: 0 done, 1 refused or failed (one line on stderr says why), 2 wrong usage.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from dataserver.errors import DataServerError

COMMANDS = {
    "serve": "serve stores to trainers",
    "store": "make, check and look at stores",
    "run": "look at and change runs of a server",
    "cursor": "look at the cursor of a run",
    "plan": "look at the steps of a run",
    "sync": "look at and ask for syncs of a run's weights",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        options = _parser(given).parse_args(given)
        status = options.handler(options)
        sys.stdout.flush()
    except DataServerError as error:
        print("dataserver:", " ".join(str(error).splitlines()), file=sys.stderr)
        return 1
    except BrokenPipeError:
        # Whoever read our output has seen enough. Python flushes stdout once more when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        print("dataserver:", error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return int(status or 0)


def _parser(given: Sequence[str]) -> argparse.ArgumentParser:
    """The parser, with the arguments of the command that `given` names; the others are only listed."""
    parser = argparse.ArgumentParser(prog="dataserver", description="The data plane of post-training.")
    parser.add_argument("--version", action=_PrintVersion, nargs=0, help="print the version and exit")
    subparsers = parser.add_subparsers(title="commands", dest="command", required=bool(given), metavar="COMMAND")
    parser.set_defaults(handler=lambda _options: parser.print_help())
    named = next((word for word in given if not word.startswith("-")), None)
    for command, summary in COMMANDS.items():
        if command == named:
            import_module(f"dataserver.cli.{command}").add_parser(subparsers)
        else:
            subparsers.add_parser(command, help=summary)
    return parser


class _PrintVersion(argparse.Action):
    """Looks the version up only when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_rest: object) -> None:
        from importlib.metadata import version

        print(f"dataserver {version('dataserver')}")
        parser.exit()


if __name__ == "__main__":
    sys.exit(main())
