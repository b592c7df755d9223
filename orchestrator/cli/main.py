"""The command line.

    orchestrator CONFIG.toml --data-endpoint HOST:PORT[,HOST:PORT...] [--section.field=value ...]
    orchestrator evals list | export | plot

Ends with 0 when the run has ended and its evals are done, or after a signal; with 1, in one line, when it cannot do
its work.
"""

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from dataserver.errors import DataServerError
from orchestrator.cli import evals


def main(arguments: Sequence[str] | None = None) -> int:
    """Run an orchestrator, or look at what evals came to; returns the exit code."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        return evals.run(given[1:]) if given[:1] == ["evals"] else _serve(given)
    except (DataServerError, OSError) as error:
        print(f"orchestrator: {error}", file=sys.stderr)
        return 1


def _serve(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="orchestrator",
        description="Evaluate the policy of a run on vLLM while it trains, and bring its weights there when they are "
        "needed.",
        epilog="Any field of the configuration can be set: --weights.transport=gloo --pool.lease_s=30. "
        "`orchestrator evals --help` shows how results are listed, exported and drawn.",
        allow_abbrev=False,
    )
    parser.add_argument("config", type=Path, help="configuration, a TOML file")
    parser.add_argument("--data-endpoint", required=True, metavar="HOST:PORT[,HOST:PORT...]", help="data servers")
    options, rest = parser.parse_known_args(arguments)
    from dataserver.config_file import overrides_of  # imported where it runs: `--help` answers at once
    from orchestrator.config_file import load_config

    config = load_config(options.config, overrides_of(rest))
    from dataserver.hosting.logs import set_up_logs
    from orchestrator.process import serve

    set_up_logs(config.serve.log_format, "orchestrator")
    # It tells every request, and engines are asked each second how they are.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    return serve(config, options.data_endpoint, _say)


def _say(line: str) -> None:
    print(line, flush=True)
