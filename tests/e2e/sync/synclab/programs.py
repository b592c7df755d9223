"""What the cell forks: data server, engine, orchestrator. Each runs until it is killed, or until its work is done."""

import asyncio
import os
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop
from crashlab.rank import RUN

from dataserver.config import ServerConfig
from dataserver.hosting.logs import set_up_logs
from dataserver.server import app
from orchestrator.config import OrchestratorConfig
from orchestrator.process import serve
from orchestrator.testing.events import Events
from orchestrator.testing.fake_engine import FakeEngine
from orchestrator.testing.faults import Fault
from orchestrator.testing.server import FakeServer

TOKEN_S = 0.01

EVALS = (
    {"name": "live", "interval": 4, "max_tokens": 10, "pin": False},
    {"name": "pinned", "interval": 6, "max_tokens": 6, "pin": True},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """Where everybody listens, also after a restart.

    Ranks call the first data server, orchestrators the last.
    """

    servers: list[int]
    engines: list[int]


def take_port() -> int:
    """A free port, kept for the processes of one story by a socket that never listens and that they may share."""
    kept = socket.socket()
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    kept.bind(("127.0.0.1", 0))
    KEPT.append(kept)
    return int(kept.getsockname()[1])


KEPT: list[socket.socket] = []


def run_server(config: ServerConfig) -> None:
    """Serve until killed."""
    set_up_logs("text")

    async def forever() -> None:
        server = app.DataServer(config, reuse_port=True)
        await server.start()
        await asyncio.Event().wait()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(forever())


class SharingFakeServer(FakeServer):
    """On a port that the cell keeps."""

    allow_reuse_port = True

    def server_bind(self) -> None:
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        super().server_bind()


def run_engine(
    port: int, events: Path, *, token_s: float = TOKEN_S, faults: tuple[Fault, ...] = (), tensors: Any = None
) -> None:
    """A fake engine until killed. `faults` are armed in its first life only."""
    engine = FakeEngine(die=lambda: os._exit(9), events=Events(events), token_s=token_s, tensors=tensors)
    marker = events.with_suffix(".lived")
    if not marker.exists():
        for fault in faults:
            engine.fault(fault)
        marker.touch()
    SharingFakeServer(port, engine, None).serve_forever()


def run_orchestrator(directory: Path, ports: Ports, patience: float) -> None:
    """An orchestrator, until its work is done."""
    set_up_logs("text", "orchestrator")
    config = orchestrator_config(directory, ports, patience)
    code = serve(config, f"127.0.0.1:{ports.servers[-1]}", lambda line: print(line, flush=True))
    if code:
        sys.exit(code)


def orchestrator_config(directory: Path, ports: Ports, patience: float) -> OrchestratorConfig:
    """As quick in everything as it allows, times `patience`."""
    prompts = directory / "prompts.jsonl"
    if not prompts.exists():
        prompts.write_text('{"prompt": "one", "reference": "a"}\n{"prompt": "two", "reference": "b"}\n')
    engines = [
        {
            "name": f"engine-{index}",
            "url": f"http://127.0.0.1:{port}",
            "restart": ["sh", "-c", f"kill -9 $(cat {directory}/pids/engine-{index})"],
            "restart_timeout_s": 10 * patience,
            "generate_timeout_s": 10 * patience,
        }
        for index, port in enumerate(ports.engines)
    ]
    return OrchestratorConfig.model_validate(
        {
            "run": {"name": RUN},
            "engines": engines,
            "weights": {
                "prepare_timeout_s": 2 * patience,
                "transfer_timeout_s": 3 * patience,
                "finish_timeout_s": 3 * patience,
            },
            "pool": {"health_every_s": 0.1, "lease_s": patience},
            "serve": {"listen": "127.0.0.1:0", "metrics_listen": "", "drain_s": 3 * patience},
            "results": {"database": f"sqlite:///{directory / 'results.db'}"},
            "evals": [
                {
                    "name": each["name"],
                    "interval": each["interval"],
                    "pin": each["pin"],
                    "prompts": {"file": str(prompts)},
                    "sampling": {"max_tokens": each["max_tokens"], "temperature": 0},
                    "drain_timeout_s": 10 * patience,
                }
                for each in EVALS
            ],
        }
    )
