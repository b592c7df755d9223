"""Ends an engine's process and starts it anew, by the command that the configuration names."""

import asyncio
import os
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import IO

from orchestrator.errors import EngineUnavailableError

POLL_S = 0.5
QUOTE_BYTES = 2000


async def run_restart(
    engine: str, command: Sequence[str], is_fresh: Callable[[], Awaitable[bool]], limit_s: float
) -> None:
    """Runs `command` to its end, then waits for a fresh, healthy engine, within `limit_s` together."""
    if not command:
        raise EngineUnavailableError(engine, "restart", "no command for it is configured: restart it by hand")
    try:
        async with asyncio.timeout(limit_s):
            await _run(engine, command)
            while not await is_fresh():  # noqa: ASYNC110  # another process, which tells nobody
                await asyncio.sleep(POLL_S)
    except TimeoutError as error:
        what = f"not healthy {limit_s:g} s after {' '.join(command)}; look at its log"
        raise EngineUnavailableError(engine, "restart", what) from error


async def _run(engine: str, command: Sequence[str]) -> None:
    # A file and no pipe: an engine that the command leaves running may hold it for as long as it lives.
    with tempfile.TemporaryFile() as said:
        try:
            process = await asyncio.create_subprocess_exec(
                *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=said
            )
        except OSError as error:
            raise EngineUnavailableError(engine, "restart", f"{' '.join(command)} cannot be run: {error}") from error
        try:
            status = await process.wait()
        except asyncio.CancelledError:
            with suppress(ProcessLookupError):  # it ended in this moment
                process.kill()
            await process.wait()
            raise
        if status:
            raise EngineUnavailableError(engine, "restart", f"{' '.join(command)} ended with {status}: {_tail(said)}")


def _tail(said: IO[bytes]) -> str:
    """The end of what the command wrote."""
    size = os.fstat(said.fileno()).st_size
    return os.pread(said.fileno(), QUOTE_BYTES, max(0, size - QUOTE_BYTES)).decode(errors="replace")
