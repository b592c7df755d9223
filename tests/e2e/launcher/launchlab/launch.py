"""A launcher that runs, its output line by line, and the processes that it said it started."""

import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

ACTOR = Path(__file__).with_name("actor.py")
LIMIT_S = 100.0

QUICK = "backoff_s = 0.05\nrestarts = 3\nstop_s = 30\n"


def act(*parts: str) -> str:
    """The command of a stand-in."""
    return " ".join([sys.executable, str(ACTOR), *parts])


def job(directory: Path, *, settings: str = QUICK, **commands: str) -> Path:
    """Write a job; names other than the four are engines."""
    tables = {name: name if name in {"server", "trainer", "orchestrator"} else f"engines.{name}" for name in commands}
    text = "".join(f"[{tables[name]}]\ncommand = '''{command}'''\n" for name, command in commands.items())
    path = directory / "job.toml"
    path.write_text(settings + text)
    return path


class Launch:
    """`launcher JOB.toml` in a session of its own."""

    def __init__(self, path: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "deploy.launcher", path],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )  # fmt: skip
        self._news: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self.lines: list[str] = []
        self.pids: dict[str, list[int]] = {}
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def until(self, pattern: str) -> re.Match[str]:
        """Read on until a line matches; lines that were read already count."""
        deadline = time.monotonic() + LIMIT_S
        seen = 0
        while True:
            for line in self.lines[seen:]:
                if found := re.search(pattern, line):
                    return found
            seen = len(self.lines)
            self._await_line(pattern, deadline)

    def pid(self, name: str, life: int = 1) -> int:
        """The process id in the `life`-th life of a process, once it runs."""
        while len(self.pids.get(name, [])) < life:
            self._await_line(f"pid of {name}", time.monotonic() + LIMIT_S)
        return self.pids[name][life - 1]

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def end(self) -> int:
        """The exit code, when it has ended."""
        code = self._process.wait(LIMIT_S)
        self._reader.join()
        while (line := self._news.get()) is not None:
            self._note(line)
        return code

    def said(self, name: str) -> list[str]:
        """Lines under that name."""
        return [text for label, _, text in (line.partition(" | ") for line in self.lines) if label.strip() == name]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    @property
    def wardens(self) -> list[int]:
        return [child.pid for child in psutil.Process(self._process.pid).children()]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        self._process.stdout.close()

    def _await_line(self, what: str, deadline: float) -> None:
        try:
            line = self._news.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            line = None
        assert line is not None, f"no {what!r} in:\n{self.text}"
        self._note(line)

    def _note(self, line: str) -> None:
        self.lines.append(line)
        if found := re.match(r"(\S+) +\| (?:pid|child) (\d+)$", line):
            self.pids.setdefault(found[1], []).append(int(found[2]))

    def _read(self) -> None:
        for line in self._process.stdout:
            self._news.put(line.rstrip("\n"))
        self._news.put(None)


def wait_gone(pids: list[int]) -> None:
    """Return when none of them runs; `AssertionError` after a while."""
    deadline = time.monotonic() + LIMIT_S
    processes = []
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            processes.append(psutil.Process(pid))
    _, alive = psutil.wait_procs(processes, timeout=deadline - time.monotonic())
    assert [process for process in alive if process.status() != psutil.STATUS_ZOMBIE] == []


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    os.kill(pid, number)
