"""One server in this process, from its start to the signal that ends it.

The first SIGTERM or SIGINT drains; the second ends the process at once.
"""

import asyncio
import faulthandler
import logging
import os
from collections.abc import Callable

import uvloop

from dataserver.config import ServerConfig
from dataserver.hosting.signals import end_on_signals
from dataserver.listening import join_address, split_address
from dataserver.server.admission import AdmissionReport
from dataserver.server.app import DataServer
from dataserver.server.memory import settle

log = logging.getLogger(__name__)

_STDERR = 2


def serve(config: ServerConfig, say: Callable[[str], None], *, reuse_port: bool = False) -> int:
    """Serve until a signal; return the exit status. `say` gets the lines that people and scripts wait for."""
    # A mapped file that somebody cut short ends the process where it is read: let the log say that, and where.
    if not faulthandler.is_enabled():
        faulthandler.enable(_STDERR)
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
