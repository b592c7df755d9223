"""Signals, and the noise of several gRPC loops in one process."""

import asyncio
import os
import signal
from collections.abc import Callable
from typing import Any

ENDED_AT_ONCE = 1


def end_on_signals(
    ending: asyncio.Event, say: Callable[[str], None], at_once: Callable[[], None] | None = None
) -> None:
    """Set `ending` at the first SIGTERM or SIGINT; at the second call `at_once` and end the process."""

    def on_signal(number: int) -> None:
        name = signal.Signals(number).name
        if ending.is_set():
            say(f"{name} again: ending at once")
            if at_once is not None:
                at_once()
            os._exit(ENDED_AT_ONCE)
        ending.set()
        say(f"{name}: draining; the same again ends at once")

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)


def quiet_poller(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Exception handler of a loop that shares its process with other gRPC loops.

    They share one wake-up socket, and whichever comes second finds nothing to read; that is no fault.
    """
    if not isinstance(context.get("exception"), BlockingIOError):
        loop.default_exception_handler(context)
