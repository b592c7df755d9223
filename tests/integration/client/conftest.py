"""Real servers in real processes, which can be killed."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from dataserver.client import DataClient
from dataserver.run_spec import BatchSpec, OrderSpec, RunSpec, Source
from dataserver.testing import write_store

LENGTHS = [5, 64, 17, 30, 3, 48, 22, 9] * 12


class ServerProcess:
    """`dataserver serve` in a process of its own. `endpoint` and `ledger` survive `kill` and `start`."""

    def __init__(self, directory: Path, arguments: list[str]) -> None:
        self._arguments = arguments
        self.ledger = f"sqlite:///{directory / 'ledger.db'}"
        self._log = (directory / "server.log").open("a")
        # Nobody else gets the port while the server is away: it is bound, and the server reuses it.
        self._kept = socket.socket()
        self._kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._kept.bind(("127.0.0.1", 0))
        self.endpoint = f"127.0.0.1:{self._kept.getsockname()[1]}"
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> "ServerProcess":
        command = [sys.executable, "-m", "dataserver.cli.main", "serve", *self._arguments]
        command += ["--listen", self.endpoint, "--metrics-listen", "", "--ledger", self.ledger]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self._log, text=True)
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("listening on "):
                return self
        raise AssertionError(f"the server did not start: {self._process.wait()}; see {self._log.name}")

    def signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def close(self) -> None:
        self.kill()
        self._kept.close()
        self._log.close()


@pytest.fixture
def store(tmp_path) -> Path:
    return write_store(tmp_path / "chat", lengths=LENGTHS)


@pytest.fixture
def serve(tmp_path, store):
    """Start server processes that share the store and one ledger; they end with the test."""
    servers: list[ServerProcess] = []

    def start(*arguments: str) -> ServerProcess:
        servers.append(ServerProcess(tmp_path, ["--store", f"chat={store}", *arguments]))
        return servers[-1].start()

    yield start
    for server in servers:
        server.close()


@pytest.fixture
def connect():
    """Connect clients; they end with the test."""
    clients: list[DataClient] = []

    def client(endpoints: str, **arguments: object) -> DataClient:
        clients.append(DataClient(endpoints, **{"patience_s": 60.0} | arguments))
        return clients[-1]

    yield client
    for client_ in clients:
        client_.close()


@pytest.fixture
def spec() -> RunSpec:
    return RunSpec(
        order=OrderSpec(sources=(Source(store="chat"),), max_length=64, seed=3),
        batch=BatchSpec(step_tokens=256, micro_batch_tokens=64, max_epochs=1),
    )
