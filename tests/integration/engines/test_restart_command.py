"""Restart commands of engines, run as an orchestrator does: on uvloop."""

import asyncio
import os
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest
import uvloop

from orchestrator.engines.restart import run_restart
from orchestrator.errors import EngineUnavailableError

# Far more than a command of the shell takes, and far less than what is left running lives.
LIMIT_S = 20.0


def restarted(*command: str, limit_s: float = LIMIT_S, fresh: Sequence[bool] = (True,)) -> None:
    answers = iter(fresh)

    async def is_fresh() -> bool:
        return next(answers)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run_restart("e0", command, is_fresh, limit_s))


def test_a_command_that_leaves_the_engine_running_is_over_when_it_ends(tmp_path: Path) -> None:
    """The engine inherits its stderr, which stays open for as long as the engine lives."""
    left = tmp_path / "pid"
    try:
        restarted("sh", "-c", f"sleep 300 & echo $! > {left}")
        os.kill(int(left.read_text()), 0)
    finally:
        os.kill(int(left.read_text()), signal.SIGKILL)


def test_a_command_that_fails_is_quoted() -> None:
    with pytest.raises(EngineUnavailableError, match=r"sh -c .* ended with 3: no such unit"):
        restarted("sh", "-c", "echo no such unit >&2; exit 3")


def test_a_command_that_does_not_end_is_killed_and_said() -> None:
    with pytest.raises(EngineUnavailableError, match=r"not healthy 2 s after sleep 300"):
        restarted("sleep", "300", limit_s=2.0)


def test_an_engine_is_awaited_until_it_is_fresh() -> None:
    restarted("true", fresh=(False, True))
