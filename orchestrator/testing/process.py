"""A fake engine in a process of its own, which can be killed; and the command that restarts it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.request import Request, urlopen

import orjson

from orchestrator.testing.events import read_events
from orchestrator.testing.faults import Fault

START_LIMIT_S = 60.0
POLL_S = 0.02


class FakeEngineProcess:
    """`python -m orchestrator.testing serve`, with its state in `directory`.

    with FakeEngineProcess(tmp_path / "e0", token_s=0.01) as fake:
        VllmEngine("e0", fake.url, restart=fake.restart_command)
    """

    def __init__(self, directory: Path, *, workers: int = 1, token_s: float = 0.0) -> None:
        self._directory = directory
        self._options = ["--workers", str(workers), "--token-s", str(token_s)]

    def __enter__(self) -> Self:
        """Starts it."""
        self._directory.mkdir(parents=True, exist_ok=True)
        spawn(self._directory, ["--port", "0", *self._options])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends it."""
        self.kill()

    @property
    def url(self) -> str:
        """Where it is; the same after a restart."""
        return f"http://127.0.0.1:{read_state(self._directory)['port']}"

    @property
    def pid(self) -> int:
        """Its process."""
        return int(read_state(self._directory)["pid"])

    @property
    def restart_command(self) -> list[str]:
        """Ends it, if it runs, and starts it with its first weights on the same port."""
        return [sys.executable, "-m", "orchestrator.testing", "restart", str(self._directory)]

    def kill(self) -> None:
        """Ends it at once; may be repeated."""
        end(self.pid)

    def fault(self, fault: Fault) -> None:
        """Arms a fault."""
        body = orjson.dumps(asdict(fault))
        with urlopen(Request(f"{self.url}/fake/fault", body, {"content-type": "application/json"})):  # noqa: S310
            pass

    def events(self, kind: str | None = None) -> list[dict[str, Any]]:
        """What happened over all its lives, of one kind or all."""
        events = read_events(self._directory / "events.jsonl")
        return [event for event in events if kind is None or event["kind"] == kind]


def read_state(directory: Path) -> dict[str, Any]:
    """`pid`, `port` and `options` of the engine there."""
    state: dict[str, Any] = orjson.loads((directory / "engine.json").read_bytes())
    return state


def write_state(directory: Path, port: int, options: Sequence[str]) -> None:
    """Says that this process is the engine there, and listens."""
    part = directory / "engine.json.part"
    part.write_bytes(orjson.dumps({"pid": os.getpid(), "port": port, "options": list(options)}))
    part.replace(directory / "engine.json")


def spawn(directory: Path, options: Sequence[str]) -> None:
    """Starts an engine and waits until it listens."""
    command = [sys.executable, "-m", "orchestrator.testing", "serve", str(directory), *options]
    with (directory / "engine.log").open("ab") as log:
        process = subprocess.Popen(  # noqa: S603
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    end_s = time.monotonic() + START_LIMIT_S
    while not (directory / "engine.json").exists() or read_state(directory)["pid"] != process.pid:
        if process.poll() is not None or time.monotonic() > end_s:
            end(process.pid)
            raise RuntimeError(f"a fake engine did not start; see {directory / 'engine.log'}")
        time.sleep(POLL_S)
    process.returncode = 0  # whoever restarts it is another process: nobody is to wait for it here


def restart(directory: Path) -> None:
    """Ends the engine there and starts another on its port."""
    state = read_state(directory)
    end(int(state["pid"]))
    spawn(directory, ["--port", str(state["port"]), *state["options"]])


def end(pid: int) -> None:
    """Kills a process and waits until it has gone."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    end_s = time.monotonic() + START_LIMIT_S
    while _alive(pid) and time.monotonic() < end_s:
        time.sleep(POLL_S)


def _alive(pid: int) -> bool:
    try:
        if os.waitpid(pid, os.WNOHANG)[0] == pid:
            return False
    except ChildProcessError:
        pass  # another process started it
    try:
        # A dead process whose parent has not looked yet is over, too.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
