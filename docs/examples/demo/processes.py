"""The demo's processes: started in groups of their own, killed like a machine that fails, never left behind."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

POLL_S = 0.05
LINES_OF_LOG = 40

# A tiny model gains nothing from threads that share its work, and on a busy machine they wait for one another.
ENVIRONMENT = {"OMP_NUM_THREADS": "1"}


class DemoError(Exception):
    """The demo cannot go on, or has shown that something is wrong; the message is the cause."""


class Process:
    """A program in a process group of its own, with its output in a file."""

    def __init__(self, name: str, command: list[str], log: Path) -> None:
        self.name = name
        self.log = log
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; its output goes behind what the log has already."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdout=log, stderr=log, start_new_session=True, env={**os.environ, **ENVIRONMENT}
            )

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The process that was started last."""
        if self._process is None:
            raise DemoError(f"{self.name} was never started")
        return self._process

    @property
    def has_ended(self) -> bool:
        """Whether it ended by itself, or was killed."""
        return self.process.poll() is not None

    def wait_until(self, what: str, condition: Callable[[], bool], timeout_s: float) -> None:
        """Return once `condition` holds; raise when the process ends first or the time is over."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            if self.has_ended and not condition():
                raise DemoError(f"{self.name} ended with code {self.process.returncode} before {what}{self.tail()}")
            if time.monotonic() > deadline:
                raise DemoError(f"{self.name}: no {what} within {timeout_s:.0f} s{self.tail()}")
            time.sleep(POLL_S)

    def wait(self, timeout_s: float) -> int:
        """Its exit code."""
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired as error:
            raise DemoError(f"{self.name} has not ended within {timeout_s:.0f} s{self.tail()}") from error

    def kill(self) -> None:
        """SIGKILL for the whole group: no handler runs, nothing is flushed."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def kill_last_child(self) -> int:
        """SIGKILL for the child that was started last; return its pid."""
        children = psutil.Process(self.process.pid).children()
        if not children:
            raise DemoError(f"{self.name} has no child to kill{self.tail()}")
        victim = max(children, key=psutil.Process.create_time)
        victim.kill()
        return int(victim.pid)

    def stop(self) -> None:
        """Ask to end, then make sure that nothing of the group is left. Idempotent."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(10)
        self.kill()

    def tail(self) -> str:
        """The end of its log, for an error message."""
        lines = self.log.read_text(errors="replace").splitlines()[-LINES_OF_LOG:]
        return "".join(f"\n    {self.log.name}: {line}" for line in lines)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def free_port() -> int:
    """A port of the loopback interface, which nobody gets, but a server that reuses it, while this process lives."""
    kept = socket.socket()
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    kept.bind(("127.0.0.1", 0))
    port: int = kept.getsockname()[1]
    kept.detach()
    return port


def is_listening(endpoint: str) -> bool:
    """Whether somebody accepts connections there."""
    host, _, port = endpoint.partition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0
