"""The command line: `launcher JOB.toml`, `launcher restart NAME`."""

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from deploy.launcher.control import SOCKET_VARIABLE, ask_to_restart
from deploy.launcher.job import JobConfig, JobError, load_job
from deploy.launcher.supervisor import Supervisor


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a job, or ask the launcher of this one for a restart; returns the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        return _restart(words[1:]) if words[:1] == ["restart"] else _launch(words)
    except JobError as error:
        print(f"launcher: {error}", file=sys.stderr)
        return 2


def _launch(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="launcher",
        description="Run a whole job on this machine: data server, trainer, engines, orchestrator.",
        epilog="From within a job, `launcher restart NAME` kills one of its processes and starts it afresh.",
        allow_abbrev=False,
    )
    parser.add_argument("job", type=Path, help="the job, a TOML file; its commands run in the file's directory")
    options = parser.parse_args(words)
    return asyncio.run(_run(load_job(options.job), options.job.resolve().parent))


async def _run(job: JobConfig, directory: Path) -> int:
    width = max(map(len, ["launcher", *job.processes]))

    def say(name: str, line: str) -> None:
        print(f"{name:{width}} | {line}", flush=True)

    return await Supervisor(job, directory=directory, environment=os.environ, say=say).run()


def _restart(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="launcher restart", description="Kill a process of this job, start it afresh."
    )
    parser.add_argument("name", help="of the process: an engine's name, server or orchestrator")
    options = parser.parse_args(words)
    launcher = os.environ.get(SOCKET_VARIABLE)
    if launcher is None:
        raise JobError(f"{SOCKET_VARIABLE} is not set: only a process that a launcher started can ask it for a restart")
    ask_to_restart(launcher, options.name)
    return 0
