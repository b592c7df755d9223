"""The server under attack, started as a person starts it, and its vital signs."""

import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from prometheus_client.parser import text_string_to_metric_families

START_S = 300.0
SETTLE_S = 60.0

# Pools of threads fill as they are used: ledger 4, plan 2, encode 1, store 2, inspect 2, asyncio's, and gRPC's, which
# grow with the number of cores. A thread for each client would be more.
POOL_THREADS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Vitals:
    """What a server holds: threads, sockets, open streams, resident memory in MiB."""

    threads: int
    sockets: int
    streams: int
    memory_mib: int


class VictimServer:
    """`dataserver serve` in a process of its own, on loopback."""

    def __init__(self, directory: Path, store: Path) -> None:
        self.directory = directory
        self.log = directory / "server.log"
        command = Path(sys.executable).parent / "dataserver"
        with self.log.open("w") as log:
            self._process = subprocess.Popen(
                [command, "serve", "--store", f"rows={store}", "--listen", "127.0.0.1:0",
                 "--ledger", f"sqlite:///{directory / 'ledger.db'}"],
                stdout=log, stderr=subprocess.STDOUT, env=os.environ | {"DATASERVER_METRICS_LISTEN": "127.0.0.1:0"},
            )  # fmt: skip
        self.endpoint, self._metrics_url = self._addresses()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        self._process.wait(timeout=60)

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def vitals(self) -> Vitals:
        proc = Path(f"/proc/{self._process.pid}")
        pages = int((proc / "statm").read_text().split()[1])
        return Vitals(
            threads=len(list((proc / "task").iterdir())),
            sockets=sum(is_socket(descriptor) for descriptor in (proc / "fd").iterdir()),
            streams=round(self.metric("dataserver_open_streams")),
            memory_mib=pages * os.sysconf("SC_PAGE_SIZE") // 2**20,
        )

    def metric(self, name: str) -> float:
        """The sum of a metric over its labels."""
        with urllib.request.urlopen(self._metrics_url, timeout=60) as answer:  # noqa: S310  # what the server printed
            text = answer.read().decode()
        samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
        return sum(sample.value for sample in samples if sample.name == name)

    def settled(self, before: Vitals, *, sockets: int = 0, memory_mib: int = 64) -> Vitals:
        """The vitals once no stream is open and they are about what they were `before`, or `SETTLE_S` later."""
        deadline = time.monotonic() + SETTLE_S
        while True:
            now = self.vitals()
            calm = (
                now.threads <= before.threads + POOL_THREADS
                and now.sockets <= before.sockets + sockets
                and now.streams == 0
                and now.memory_mib <= before.memory_mib + memory_mib
            )
            if calm or time.monotonic() > deadline:
                return now
            time.sleep(0.05)

    def _addresses(self) -> tuple[str, str]:
        """Where it listens, out of what it prints."""
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and self.alive:
            text = self.log.read_text()
            grpc_address = re.search(r"listening on (\S+:\d+)", text)
            metrics_address = re.search(r"(http://\S+/metrics)", text)
            if grpc_address and metrics_address:
                return grpc_address[1], metrics_address[1]
            time.sleep(0.02)
        raise RuntimeError(f"the server did not start:\n{self.log.read_text()}")


def is_socket(descriptor: Path) -> bool:
    """Whether an entry of /proc/PID/fd is a socket; one that is closed meanwhile is none."""
    try:
        return descriptor.readlink().name.startswith("socket:")
    except FileNotFoundError:
        return False
