"""One orchestrator in this process, from its start to its end.

The first SIGTERM or SIGINT drains; the second ends the process at once.
"""

import asyncio
from collections.abc import Callable

import uvloop

from dataserver.hosting.signals import end_on_signals
from dataserver.listening import join_address, split_address
from orchestrator.app import Orchestrator
from orchestrator.config import OrchestratorConfig


def serve(config: OrchestratorConfig, endpoints: str, say: Callable[[str], None]) -> int:
    """Run until the run is over, or a signal; returns the exit status. `say` gets the lines that people wait for."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(config, endpoints, say))


async def _serve(config: OrchestratorConfig, endpoints: str, say: Callable[[str], None]) -> int:
    orchestrator = Orchestrator(config, endpoints)
    end_on_signals(orchestrator.ending, say)
    starting = asyncio.ensure_future(orchestrator.start())
    ending = asyncio.ensure_future(orchestrator.ending.wait())
    try:
        await asyncio.wait((starting, ending), return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
            await asyncio.wait((starting,))
            return 0
        address = starting.result()
        if orchestrator.metrics_port:
            host, _ = split_address(config.serve.metrics_listen)
            say(f"metrics on http://{join_address(host, orchestrator.metrics_port)}/metrics")
        say(f"listening on {address}")
        await orchestrator.run()
    finally:
        ending.cancel()
        await orchestrator.stop()
    say("ended")
    return 0
