"""Ends an engine's process and starts it anew, by the command that the configuration names."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

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
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        raise EngineUnavailableError(engine, "restart", f"{' '.join(command)} cannot be run: {error}") from error
    try:
        _, stderr = await process.communicate()
    except asyncio.CancelledError:
        process.kill()
        await process.wait()
        raise
    if process.returncode:
        text = stderr[-QUOTE_BYTES:].decode(errors="replace")
        what = f"{' '.join(command)} ended with {process.returncode}: {text}"
        raise EngineUnavailableError(engine, "restart", what)
