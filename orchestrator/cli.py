"""The command line.

    orchestrator CONFIG.toml --data-endpoint HOST:PORT[,HOST:PORT...] [--section.field=value ...]

Ends with 0 when the run has ended and its evals are done, or after a signal; with 1, in one line, when it cannot do
its work.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from dataserver.errors import DataServerError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run an orchestrator; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="orchestrator",
        description="Evaluate the policy of a run on vLLM while it trains, and bring its weights there when they are "
        "needed.",
        epilog="Any field of the configuration can be set: --weights.transport=gloo --pool.lease_s=30",
        allow_abbrev=False,
    )
    parser.add_argument("config", type=Path, help="configuration, a TOML file")
    parser.add_argument("--data-endpoint", required=True, metavar="HOST:PORT[,HOST:PORT...]", help="data servers")
    options, rest = parser.parse_known_args(arguments)
    from dataserver.config_file import overrides_of  # noqa: PLC0415 - `--help` answers at once
    from orchestrator.config_file import load_config  # noqa: PLC0415

    try:
        config = load_config(options.config, overrides_of(rest))
        from dataserver.hosting.logs import set_up_logs  # noqa: PLC0415
        from orchestrator.process import serve  # noqa: PLC0415

        set_up_logs(config.serve.log_format, "orchestrator")
        return serve(config, options.data_endpoint, _say)
    except DataServerError as error:
        print(f"orchestrator: {error}", file=sys.stderr)
        return 1


def _say(line: str) -> None:
    print(line, flush=True)
