"""Several processes of one server: they share the address by SO_REUSEPORT and agree through the ledger.

    parent: holds the address, admits the stores once, serves /metrics for all, forwards signals
      ├─ worker 0 ─┐
      ├─ worker 1 ─┼─ each a whole server; one that dies is started again
      └─ worker n ─┘

Workers are started afresh, never forked: gRPC does not survive a fork.
"""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, ProcessCollector
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

from dataserver.config import ServerConfig
from dataserver.errors import InvalidConfigError, UnavailableError
from dataserver.hosting.metrics_endpoint import MetricsEndpoint
from dataserver.hosting.signals import end_on_signals
from dataserver.listening import join_address, split_address
from dataserver.server.admission import AdmissionReport
from dataserver.streaming.catalog import open_catalog

log = logging.getLogger(__name__)

# Pause before a dead worker is started again: doubled with each death, forgotten after a healthy minute.
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
HEALTHY_S = 60.0

# What workers get beyond `drain_s` before they are killed.
KILL_AFTER_S = 10.0


def supervise(config: ServerConfig, say: Callable[[str], None]) -> int:
    """Run `config.workers` workers until a signal; return the exit status."""
    return asyncio.run(Supervisor(config, say).run())


class Supervisor:
    """The parent of the workers."""

    def __init__(self, config: ServerConfig, say: Callable[[str], None]) -> None:
        self._config = config
        self._say = say
        self._ending = asyncio.Event()
        self._processes: dict[int, Process] = {}
        self._ready: dict[int, asyncio.Event] = {index: asyncio.Event() for index in range(config.workers)}
        self._metrics_dir = ""
        self._registry = CollectorRegistry()
        self._up = Gauge("dataserver_workers", "Workers that serve.", registry=self._registry)
        self._deaths = Counter("dataserver_worker_deaths", "Workers that died.", registry=self._registry)

    async def run(self) -> int:
        """Start, watch, and end the workers."""
        end_on_signals(self._ending, self._say, self._kill_all)
        with (
            contextlib.closing(reserve_address(self._config.listen)) as address,
            tempfile.TemporaryDirectory(prefix="dataserver-metrics-", ignore_cleanup_errors=True) as self._metrics_dir,
            contextlib.closing(self._metrics_endpoint()) as endpoint,
        ):
            await self._admit_or_end()
            if self._config.metrics_listen:
                host, _ = split_address(self._config.metrics_listen)
                self._say(f"metrics on http://{join_address(host, endpoint.start())}/metrics")
            host, _ = split_address(self._config.listen)
            listen = join_address(host, address.getsockname()[1])
            await self._run_workers(self._config.model_copy(update={"listen": listen, "metrics_listen": ""}))
        self._say("ended")
        return 0

    async def _run_workers(self, config: ServerConfig) -> None:
        keeping: list[asyncio.Future[None]] = [
            asyncio.ensure_future(self._keep(index, config)) for index in range(config.workers)
        ]
        ready = asyncio.ensure_future(self._all_ready())
        ending = asyncio.ensure_future(self._ending.wait())
        try:
            events: list[asyncio.Future[Any]] = [ready, ending, *keeping]
            await asyncio.wait(events, return_when=asyncio.FIRST_COMPLETED)
            if ready.done():
                self._say(f"listening on {config.listen} with {config.workers} workers")
                events = [ending, *keeping]
                await asyncio.wait(events, return_when=asyncio.FIRST_COMPLETED)
            for task in keeping:
                if task.done():
                    task.result()
        finally:
            ready.cancel()
            ending.cancel()
            self._ending.set()
            await self._end_all(keeping)

    async def _all_ready(self) -> None:
        for event in self._ready.values():
            await event.wait()

    async def _keep(self, index: int, config: ServerConfig) -> None:
        """Keep worker `index` running. Raises `UnavailableError` if it never came to serve at all."""
        pause_s = FIRST_PAUSE_S
        while not self._ending.is_set():
            begun = time.monotonic()
            end = await self._run_once(index, config)
            if self._ending.is_set():
                return
            if not self._ready[index].is_set():
                raise UnavailableError(f"worker {index} {end} before it served; its log says why")
            self._deaths.inc()
            pause_s = FIRST_PAUSE_S if time.monotonic() - begun > HEALTHY_S else pause_s
            log.error("worker %d %s; starting it again in %.1f s", index, end, pause_s)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    async def _run_once(self, index: int, config: ServerConfig) -> str:
        """Start worker `index` and wait for its end; say in words how it ended."""
        try:
            process = await self._spawn(index, config)
        except OSError as error:
            return f"could not be started ({error})"
        try:
            status = await self._watch(index, process)
        finally:
            mark_process_dead(process.pid, self._metrics_dir)  # type: ignore[no-untyped-call]
        return f"(pid {process.pid}) died with status {status}"

    async def _spawn(self, index: int, config: ServerConfig) -> Process:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "dataserver.server.worker", f"worker-{index}",
            stdin=PIPE,
            stdout=PIPE,
            env=os.environ | {"PROMETHEUS_MULTIPROC_DIR": self._metrics_dir},
            # A terminal's Ctrl-C goes to the parent alone, which forwards it once.
            start_new_session=True,
        )  # fmt: skip
        self._processes[index] = process
        if self._ending.is_set():
            # It was not there yet when all were told to end.
            process.send_signal(signal.SIGTERM)
        if process.stdin is not None:
            process.stdin.write(config.model_dump_json().encode() + b"\n")
        return process

    async def _watch(self, index: int, process: Process) -> int:
        """Note when the worker serves; return its exit status."""
        serves = False
        while process.stdout is not None and (line := await process.stdout.readline()):
            if line.startswith(b"listening on"):
                serves = True
                self._up.inc()
                self._ready[index].set()
                log.info("worker %d (pid %d) serves", index, process.pid)
        status = await process.wait()
        if serves:
            self._up.dec()
        return status

    async def _end_all(self, keeping: list["asyncio.Future[None]"]) -> None:
        for process in self._processes.values():
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
        _, late = await asyncio.wait(keeping, timeout=self._config.drain_s + KILL_AFTER_S)
        if late:
            log.error("%d workers did not end in time; they are killed", len(late))
            self._kill_all()
            await asyncio.wait(keeping)

    def _kill_all(self) -> None:
        for process in self._processes.values():
            if process.returncode is None:
                process.kill()

    async def _admit_or_end(self) -> None:
        admitting = asyncio.ensure_future(asyncio.to_thread(self._admit))
        ending = asyncio.ensure_future(self._ending.wait())
        events: list[asyncio.Future[Any]] = [admitting, ending]
        await asyncio.wait(events, return_when=asyncio.FIRST_COMPLETED)
        if not admitting.done():
            # Admission runs in a thread that nothing can interrupt; it leaves no half-written file behind.
            os._exit(0)
        ending.cancel()
        admitting.result()

    def _admit(self) -> None:
        """Admit once, so that the workers open indexes that are there."""
        report = AdmissionReport(self._say)
        open_catalog(self._config, progress=report.progress, admitted=report.admitted).close()

    def _metrics_endpoint(self) -> MetricsEndpoint:
        MultiProcessCollector(self._registry, self._metrics_dir)  # type: ignore[no-untyped-call]
        ProcessCollector(registry=self._registry)
        return MetricsEndpoint(self._config.metrics_listen, self._registry)


def reserve_address(listen: str) -> socket.socket:
    """A socket that holds the address without listening on it; workers share it by SO_REUSEPORT.

    Raises `InvalidConfigError` when somebody else has it, or nobody knows the host.
    """
    host, port = split_address(listen)
    try:
        family, _, _, _, found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise InvalidConfigError(f"cannot listen on {listen}: {error.strerror}") from error
    held = socket.socket(family, socket.SOCK_STREAM)
    try:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind(found)
    except OSError as error:
        held.close()
        raise InvalidConfigError(f"cannot listen on {listen}: {error.strerror}") from error
    return held
