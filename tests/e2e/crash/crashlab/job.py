"""A job in one directory: servers, and one life of the trainer after the other."""

import json
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crashlab.audit import Audit, collect
from crashlab.collective import Collective, star
from crashlab.rank import PATIENCE_S, Life, Place, Rank
from crashlab.server import serve
from crashlab.trigger import Crash, Processes, Trigger
from dataserver.client import DataClient
from dataserver.config import ServerConfig, StoreConfig
from dataserver.run_spec import BatchSpec, OrderSpec, RunSpec, Source

# As short as the server allows: a resume after the death of server and ranks waits it out.
LEASE_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LifeEnd:
    """How a life ended: by rank the exit code (negative: the signal) and the class of the error, if any."""

    exit_codes: dict[int, int]
    errors: dict[int, str]
    fired: bool

    @property
    def unharmed(self) -> bool:
        return set(self.exit_codes.values()) == {0}


class Job:
    """Plays torchrun and the service manager, in a process that never starts gRPC itself."""

    def __init__(
        self, directory: Path, store: Path, rows: int, batch: BatchSpec, servers: int, lease_s: float = LEASE_S
    ) -> None:
        self.directory = directory
        self.store = store
        self.rows = rows
        self.lease_s = lease_s
        self.processes = Processes()
        self._crashes = 0
        self.arm(None)
        self._reserved = [_reserve_port() for _ in range(servers)]
        self._servers: dict[int, int] = {}
        order = OrderSpec(sources=(Source(store="rows"),), seed=11, max_length=16)
        self.place = Place(
            endpoints=",".join(f"127.0.0.1:{port}" for port, _ in self._reserved),
            directory=directory,
            spec=RunSpec(order=order, batch=batch),
        )

    @property
    def ledger_path(self) -> Path:
        return self.directory / "ledger.db"

    def start_server(self, index: int = 0) -> None:
        """Start server `index` and wait until it listens."""
        port, _ = self._reserved[index]
        config = ServerConfig(
            listen=f"127.0.0.1:{port}",
            stores={"rows": StoreConfig(path=self.store)},
            ledger=f"sqlite:///{self.ledger_path}",
            lease_s=self.lease_s,
            metrics_listen="",
        )
        opened, ready = os.pipe()
        pid = spawn(lambda: serve(config, self.trigger, ready), self.directory / f"server-{index}.log")
        self._servers[pid] = index
        self.processes.note_server(index, pid)
        os.close(ready)
        if os.read(opened, 1) != b"!":
            raise RuntimeError(f"server {index} did not start: {tail(self.directory / f'server-{index}.log')}")
        os.close(opened)

    def stop_server(self, index: int = 0) -> None:
        """End server `index` for good, without a word."""
        pid = self.processes.server(index)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        del self._servers[pid]

    def restart_servers(self) -> None:
        """Kill those that run and start all."""
        self.close()
        for index in range(len(self._reserved)):
            self.start_server(index)

    def arm(self, crash: Crash | None) -> None:
        """Crash as told in processes that start from now on."""
        self._crashes += 1
        self.trigger = Trigger(crash, self.processes, self.directory / f"fired-{self._crashes}")

    def live(self, life: Life, *, restart_servers: bool = True) -> LifeEnd:
        """Run one life to its end. A rank's death ends its siblings; a server's death starts it again."""
        self.processes.forget_ranks()
        ranks = {self._start_rank(life, end): end.rank for end in star(life.world_size)}
        codes: dict[int, int] = {}
        while ranks:
            pid, status = os.wait()
            code = os.waitstatus_to_exitcode(status)
            if pid in self._servers:
                self._server_ended(self._servers.pop(pid), code, restart_servers)
                continue
            codes[ranks.pop(pid)] = code
            if code != 0:
                for sibling in ranks:
                    os.kill(sibling, signal.SIGKILL)
        return LifeEnd(exit_codes=codes, errors=self._errors(life), fired=self.trigger.fired)

    def ask(self, question: Callable[[DataClient], Any]) -> Any:
        """What `question` finds out as a client, in a process of its own; anything that JSON can carry."""
        answer, log = self.directory / "answer.json", self.directory / "question.log"

        def put() -> None:
            with DataClient(self.place.endpoints, patience_s=PATIENCE_S) as client:
                answer.write_text(json.dumps(question(client)))

        _, status = os.waitpid(spawn(put, log), 0)
        if status != 0:
            raise RuntimeError(f"a question to the server failed: {tail(log)}")
        return json.loads(answer.read_text())

    def audit(self, forgotten: Collection[int] = ()) -> list[str]:
        """Compare the surviving weights with the store, and with what the ledger says of each step.

        Of the `forgotten` steps the ledger need not know anything.
        """
        return Audit(**self.ask(collect)).complaints(self.place.checkpoints, self.rows, forgotten)

    def close(self) -> None:
        """End what still runs."""
        for pid in self._servers:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        self._servers.clear()

    def _start_rank(self, life: Life, end: Collective) -> int:
        error_file = self._error_file(life, end.rank)
        error_file.unlink(missing_ok=True)

        def train() -> None:
            self.processes.note_rank(end.rank, os.getpid())
            end.barrier()
            try:
                Rank(self.place, life, end, self.trigger).train()
            except Exception as error:
                error_file.write_text(type(error).__name__)
                raise

        return spawn(train, self.directory / f"{life.holder}-{end.rank}.log")

    def _server_ended(self, index: int, code: int, restart: bool) -> None:
        if code != -signal.SIGKILL:
            raise RuntimeError(f"server {index} ended with {code}: {tail(self.directory / f'server-{index}.log')}")
        if restart:
            self.start_server(index)

    def _errors(self, life: Life) -> dict[int, str]:
        files = {rank: self._error_file(life, rank) for rank in range(life.world_size)}
        return {rank: file.read_text() for rank, file in files.items() if file.exists()}

    def _error_file(self, life: Life, rank: int) -> Path:
        return self.directory / f"{life.holder}-{rank}.error"


def spawn(target: Callable[[], None], log: Path) -> int:
    """Fork a process that runs `target` and ends with 0, or with 1 and its traceback in `log`."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(descriptor, sys.stdout.fileno())
        os.dup2(descriptor, sys.stderr.fileno())
        target()
        code = 0
    except BaseException:  # noqa: BLE001  # whatever it is, it belongs into the log
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def tail(log: Path, characters: int = 1500) -> str:
    """The end of a log."""
    return log.read_text()[-characters:] if log.exists() else "(no log)"


def _reserve_port() -> tuple[int, socket.socket]:
    """A free port, kept from others by a bound socket that never listens."""
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    reserved.bind(("127.0.0.1", 0))
    return reserved.getsockname()[1], reserved
