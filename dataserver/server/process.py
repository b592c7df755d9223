"""One server in this process, from its start to the signal that ends it.

The first SIGTERM or SIGINT drains; the second ends the process at once.
"""

import asyncio
import logging
import os
import signal
from collections.abc import Callable
from typing import Any

import uvloop

from dataserver.config import ServerConfig, join_address, split_address
from dataserver.server.admission import AdmissionReport
from dataserver.server.app import DataServer
from dataserver.server.memory import settle

log = logging.getLogger(__name__)

ENDED_AT_ONCE = 1


def serve(config: ServerConfig, say: Callable[[str], None], *, reuse_port: bool = False) -> int:
    """Serve until a signal; return the exit status. `say` gets the lines that people and scripts wait for."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(config, say, reuse_port))


async def _serve(config: ServerConfig, say: Callable[[str], None], reuse_port: bool) -> int:
    report = AdmissionReport(say)
    server = DataServer(config, reuse_port=reuse_port, progress=report.progress, admitted=report.admitted)
    ending = asyncio.Event()
    end_on_signals(ending, say)
    starting = asyncio.ensure_future(server.start())
    waiting = asyncio.ensure_future(ending.wait())
    await asyncio.wait((starting, waiting), return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        # Admission runs in a thread that nothing can interrupt; it leaves no half-written file behind.
        os._exit(0)
    port = await starting
    settle()
    if server.metrics_port:
        say(f"metrics on http://{join_address(split_address(config.metrics_listen)[0], server.metrics_port)}/metrics")
    say(f"listening on {join_address(split_address(config.listen)[0], port)}")
    await waiting
    await server.drain()
    await server.stop()
    say("ended")
    return 0


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
