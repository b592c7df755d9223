"""One story's processes. The cell plays the launcher, and never starts gRPC itself."""

import heapq
import json
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from crashlab.audit import Audit, collect
from crashlab.collective import star
from crashlab.job import LEASE_S, spawn, tail
from crashlab.rank import PATIENCE_S, RUN, Life, Place
from crashlab.samples import write_rows

from dataserver.client import DataClient
from dataserver.config import ServerConfig, StoreConfig
from dataserver.run_spec import BatchSpec, OrderSpec, RunSpec, Source
from orchestrator.testing.events import read_events
from synclab.moments import Bomb, Kill
from synclab.programs import Ports, run_engine, run_orchestrator, run_server, take_port
from synclab.rank import Pace, SyncRank

ROWS = 48
BATCH = BatchSpec(step_samples=4, micro_batch_tokens=16, max_epochs=1)
STEPS = 12

POLL_S = 0.01
LIMIT_S = 150.0
BACKOFF_S = 0.1
MOST_LIVES = 12

Event = Callable[[], None]


class Cell:
    """Processes by name: server, engine-0, engine-1, orchestrator, rank-0, rank-1 …; second ones: server-1, …

    `patience` makes the deadlines of orchestrators, and that of the run's end, so many times as long.
    """

    def __init__(self, directory: Path, *, kills: list[Kill] | None = None, patience: float = 1.0) -> None:
        self.directory = directory
        self.patience = patience
        for name in ("pids", "fired", "weights", "engines"):
            (directory / name).mkdir()
        write_rows(directory / "store", ROWS)
        self.ports = Ports(servers=[take_port()], engines=[take_port() for _ in range(2)])
        order = OrderSpec(sources=(Source(store="rows"),), seed=11, max_length=16)
        endpoint = f"127.0.0.1:{self.ports.servers[0]}"
        self.place = Place(endpoints=endpoint, directory=directory, spec=RunSpec(order=order, batch=BATCH))
        self.bomb = Bomb(kills or [], directory / "pids", directory / "fired")
        self.lives = 0
        self.codes: dict[str, list[int]] = {}
        self._begun = time.monotonic()
        self._programs: dict[str, Callable[[], None]] = {}
        self._running: dict[int, str] = {}
        self._coming_back: list[str] = []
        self._due: list[tuple[float, int, Event]] = []
        self._awaited: list[tuple[int, Event]] = []
        self._forgotten: range | tuple[()] = ()

    # What stories do

    def serve(self, number: int = 0, **settings: Any) -> None:
        """Start a data server; all of them share one ledger."""
        name = "server" if number == 0 else f"server-{number}"
        self.ports.servers.extend(take_port() for _ in range(number + 1 - len(self.ports.servers)))
        config = ServerConfig(
            listen=f"127.0.0.1:{self.ports.servers[number]}",
            stores={"rows": StoreConfig(path=self.directory / "store")},
            ledger=f"sqlite:///{self.directory / 'ledger.db'}",
            index_dir=self.directory / "index",
            lease_s=LEASE_S,
            metrics_listen="",
            shutdown_hold_s=20 * self.patience,
            **settings,
        )
        self.start(name, lambda: run_server(config))

    def engage(self, number: int, **settings: Any) -> None:
        """Start an engine."""
        events = self.directory / "engines" / f"{number}.jsonl"
        self.start(f"engine-{number}", lambda: run_engine(self.ports.engines[number], events, **settings))

    def orchestrate(self, number: int = 0) -> None:
        """Start an orchestrator."""
        name = "orchestrator" if number == 0 else f"orchestrator-{number}"
        self.start(name, lambda: run_orchestrator(self.directory, self.ports, self.patience))

    def start(self, name: str, program: Callable[[], None]) -> None:
        """Start a process, and start it again whenever it is killed."""
        self._programs[name] = program
        self._spawn(name)

    def at(self, seconds: float, event: Event) -> None:
        """Do something so many seconds after the beginning."""
        heapq.heappush(self._due, (self._begun + seconds, len(self._due) + int(1e6 * seconds), event))

    def at_checkpoint(self, step: int, event: Event) -> None:
        """Do something once the checkpoint of a step is there."""
        self._awaited.append((step, event))

    def kill(self, name: str) -> None:
        """SIGKILL, now."""
        self._signal(name, signal.SIGKILL)

    def put_to_sleep(self, number: int) -> None:
        """Have an engine sleep so deep that it drops its weights."""
        url = f"http://127.0.0.1:{self.ports.engines[number]}/sleep?level=2"
        with urlopen(Request(url, method="POST"), timeout=60):
            return

    def freeze(self, name: str, seconds: float) -> None:
        """Stop a process for a while: everything that it says or hears is late."""
        pid = self._signal(name, signal.SIGSTOP)
        if pid:
            self.at(time.monotonic() - self._begun + seconds, lambda: self._thaw(pid))

    def train(self, *, world_size: int = 2, pace: Pace | None = None) -> None:
        """Live until a life ends well, and the orchestrators have ended too; `RuntimeError` at the limit."""
        while not self._lived_well(world_size, pace or Pace()):
            if self.lives == MOST_LIVES:
                raise RuntimeError(f"{MOST_LIVES} lives ended badly: {self.codes}")
        self._watch(lambda: not any(name.startswith("orchestrator") for name in self._living()))

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

    def audit(self) -> list[str]:
        """Complaints about samples that were lost or repeated."""
        return Audit(**self.ask(collect)).complaints(self.place.checkpoints, ROWS, self._forgotten)

    def close(self) -> None:
        """End everything."""
        for pid in self._running:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        self._running.clear()

    def has_fired(self, number: int) -> bool:
        """Whether kill `number` happened."""
        return (self.directory / "fired" / f"kill-{number}").exists()

    def engine_events(self, number: int) -> list[dict[str, Any]]:
        """What an engine wrote down over all its lives."""
        return read_events(self.directory / "engines" / f"{number}.jsonl")

    def rewind(self) -> None:
        """Move the run back to its newest checkpoint, in a process that the cell buries.

        The trainer may go on from a checkpoint that it wrote meanwhile, whose steps the ledger then dropped.
        """
        self._forgotten = range(1, STEPS + 1)
        self._spawn("person", lambda: self._as_client(lambda client: client.rewind_run(RUN, latest(self.place))))

    def take_over(self) -> None:
        """Begin an attempt at the newest checkpoint as another trainer, which then does nothing more."""
        self._forgotten = range(1, STEPS + 1)
        self._spawn("person", lambda: self._as_client(lambda client: intrude(client, latest(self.place))))

    # Inside

    def _as_client(self, act: Callable[[DataClient], object]) -> None:
        with DataClient(self.place.endpoints, patience_s=PATIENCE_S) as client:
            act(client)

    def _lived_well(self, world_size: int, pace: Pace) -> bool:
        self.lives += 1
        life = Life(world_size=world_size, holder=f"life-{self.lives}", save_every=3)
        names = [f"rank-{end.rank}" for end in star(world_size) if self._spawn_rank(life, end, pace)]
        self._watch(lambda: not any(name.startswith("rank-") for name in self._running.values()))
        return all(self.codes[name][-1] == 0 for name in names)

    def _spawn_rank(self, life: Life, end: Any, pace: Pace) -> bool:
        def run() -> None:
            end.barrier()
            SyncRank(self.place, life, end, self.bomb, pace).train()

        self._spawn(f"rank-{end.rank}", run)
        return True

    def _spawn(self, name: str, program: Callable[[], None] | None = None) -> None:
        pid = spawn(program or self._programs[name], self.directory / f"{name}.log")
        self._running[pid] = name
        (self.directory / "pids" / name).write_text(str(pid))

    def _watch(self, over: Callable[[], bool]) -> None:
        """Bury who ends, start again who was killed, do what is due; until `over`, or the story's limit."""
        while not over():
            if time.monotonic() - self._begun > LIMIT_S:
                raise RuntimeError(f"after {LIMIT_S:g} s there still run {sorted(self._running.values())}")
            while self._due and self._due[0][0] <= time.monotonic():
                heapq.heappop(self._due)[2]()
            while self._awaited and self._awaited[0][0] <= latest(self.place):
                self._awaited.pop(0)[1]()
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid:
                self._ended(self._running.pop(pid), os.waitstatus_to_exitcode(status))
            else:
                time.sleep(POLL_S)

    def _ended(self, name: str, code: int) -> None:
        self.codes.setdefault(name, []).append(code)
        if name.startswith("rank-"):
            if code:
                for pid, other in self._running.items():
                    if other.startswith("rank-"):
                        os.kill(pid, signal.SIGKILL)
        elif code and name in self._programs:
            self._coming_back.append(name)
            self.at(time.monotonic() - self._begun + BACKOFF_S, lambda: self._come_back(name))

    def _come_back(self, name: str) -> None:
        self._coming_back.remove(name)
        self._spawn(name)

    def _living(self) -> list[str]:
        """Who runs, or was killed and is about to be started again."""
        return [*self._running.values(), *self._coming_back]

    def _signal(self, name: str, number: int) -> int:
        pid = next((pid for pid, running in self._running.items() if running == name), 0)
        if pid:
            os.kill(pid, number)
        return pid

    def _thaw(self, pid: int) -> None:
        if pid in self._running:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def latest(place: Place) -> int:
    """The step of the newest checkpoint; 0 without one."""
    checkpoint = place.checkpoints.latest()
    return checkpoint.cursor.step if checkpoint else 0


def intrude(client: DataClient, version: int) -> None:
    """Fence whoever trains."""
    client.begin_attempt(
        RUN, resume=True, cursor=None, version=version, world_size=1, dp_world_size=1, batch=None, holder="intruder",
        take_over=True,
    )  # fmt: skip
