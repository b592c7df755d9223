"""`dataserver serve` as a process: signals, workers, refusals."""

import contextlib
import json
import logging
import os
import queue
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from serverlab import PATIENCE_S, Job, eventually

from dataserver.cli.main import main

LISTENING = re.compile(r"listening on (\S+)")
METRICS = re.compile(r"metrics on (\S+)")


class Serve:
    """A `dataserver serve` process; its lines are kept as they come."""

    def __init__(self, directory: Path, *arguments: str | Path) -> None:
        self.lines: list[str] = []
        self._arrived: queue.SimpleQueue = queue.SimpleQueue()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "dataserver.cli.main", "serve", *map(str, arguments)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=directory,
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self.process.stdout:
            self.lines.append(line.rstrip())
            self._arrived.put(line)
        self._arrived.put(None)

    def wait_for(self, pattern: re.Pattern | str) -> re.Match:
        """The first line from here on that matches."""
        while (line := self._arrived.get(timeout=PATIENCE_S * 2)) is not None:
            if found := re.search(pattern, line):
                return found
        raise AssertionError(f"{pattern} was not said:\n" + "\n".join(self.lines))

    def wait(self) -> int:
        status = self.process.wait(PATIENCE_S * 2)
        self._reader.join(PATIENCE_S)
        return status

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join(PATIENCE_S)
        self.process.stdout.close()


@contextlib.contextmanager
def serving(directory: Path, *arguments: str | Path) -> Iterator[Serve]:
    started = Serve(directory, *arguments)
    try:
        yield started
    finally:
        started.close()


@pytest.fixture
def flags(chat_store: Path, tmp_path: Path) -> list[str]:
    return [
        "--store", f"chat={chat_store}", "--ledger", f"sqlite:///{tmp_path}/ledger.db", "--listen", "127.0.0.1:0",
        "--metrics-listen", "127.0.0.1:0", "--index-dir", f"{tmp_path}/indexes",
    ]  # fmt: skip


def health(endpoint: str) -> int:
    with grpc.insecure_channel(endpoint) as channel:
        return health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=PATIENCE_S).status


def fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=PATIENCE_S) as page:  # noqa: S310 - the process said where
        return page.read().decode()


class Endpoint:
    """What a `Job` needs of a server."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint


def test_a_server_that_a_mapped_file_ends_says_by_what(flags: list[str], tmp_path: Path) -> None:
    with serving(tmp_path, *flags) as server:
        server.wait_for(LISTENING)
        # What the system sends to whoever reads behind the end of a file.
        os.kill(server.process.pid, signal.SIGBUS)
        assert server.wait() == -signal.SIGBUS
        assert "Fatal Python error: Bus error" in server.lines


def test_a_process_says_what_it_serves_and_ends_well_on_sigterm(tmp_path: Path, flags: list[str]) -> None:
    with serving(tmp_path, *flags) as serve:
        serve.wait_for(r"store chat: 30 rows, 480 tokens, longest 40, .*fingerprint [0-9a-f]{32}")
        metrics = serve.wait_for(METRICS)[1]
        endpoint = serve.wait_for(LISTENING)[1]
        assert health(endpoint) == health_pb2.HealthCheckResponse.SERVING
        assert "dataserver_store_rows" in fetch(metrics)
        serve.process.send_signal(signal.SIGTERM)
        assert serve.wait() == 0
        assert serve.lines[-1] == "ended"


def test_a_ledger_outlives_the_process_that_is_killed(tmp_path: Path, flags: list[str]) -> None:
    with serving(tmp_path, *flags) as serve:
        job = Job(Endpoint(serve.wait_for(LISTENING)[1]))
        job.create()
        stream = job.stream(job.begin())
        begun, _ = stream.take_step()
        serve.process.kill()
        assert stream.error().code() == grpc.StatusCode.UNAVAILABLE
        job.close()
    with serving(tmp_path, *flags) as serve:
        restarted = Job(Endpoint(serve.wait_for(LISTENING)[1]))
        restarted.attempt_ids = job.attempt_ids
        again, _ = restarted.stream(1).take_step()
        assert again == begun
        restarted.close()


def test_a_second_signal_ends_a_process_at_once(tmp_path: Path, flags: list[str]) -> None:
    """Both arrive while it is stopped, so that the second is there before the drain ends."""
    with serving(tmp_path, *flags) as serve:
        serve.wait_for(LISTENING)
        os.kill(serve.process.pid, signal.SIGSTOP)
        serve.process.send_signal(signal.SIGTERM)
        serve.process.send_signal(signal.SIGINT)
        os.kill(serve.process.pid, signal.SIGCONT)
        assert serve.wait() == 1
        assert any("ending at once" in line for line in serve.lines)


def test_json_logs_are_one_object_a_line(tmp_path: Path, flags: list[str]) -> None:
    with serving(tmp_path, *flags, "--log-format", "json") as serve:
        job = Job(Endpoint(serve.wait_for(LISTENING)[1]))
        job.create()
        job.close()
        entry = json.loads(serve.wait_for(r"^\{.*run run: created.*\}$")[0])
        assert entry["level"] == "info"
        assert entry["logger"] == "dataserver.services.run_service"


def test_settings_come_from_file_environment_and_flags_in_that_order(
    tmp_path: Path, chat_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "server.toml").write_text(
        f'listen = "127.0.0.1:1"\nmetrics_listen = ""\nledger = "sqlite:///one.db"\nlease_s = 7\n'
        f'[stores.chat]\npath = "{chat_store}"\n'
    )
    monkeypatch.setenv("DATASERVER_LEDGER", "sqlite:///two.db")
    monkeypatch.setenv("DATASERVER_LISTEN", "127.0.0.1:2")
    with serving(tmp_path, "server.toml", "--listen", "127.0.0.1:0") as serve:
        serve.wait_for(LISTENING)
        assert 'listen = "127.0.0.1:0"' in serve.lines
        assert 'ledger = "sqlite:///two.db"' in serve.lines
        assert "lease_s = 7.0" in serve.lines
        assert any(line.startswith("stores.chat = ") for line in serve.lines)
        serve.process.send_signal(signal.SIGTERM)
        assert serve.wait() == 0


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        (["--listen", "0.0.0.0:0"], "reachable from other machines"),
        (["--listen", "nonsense"], "give HOST:PORT"),
        (["--store", "chat"], "give NAME=PATH"),
        (["--store", "gone=/does/not/exist"], "/does/not/exist"),
        (["--ledger", "mysql://host/database"], "mysql"),
        (["--workers", "0"], "workers"),
        (["--workers", "many"], "workers"),
        (["absent.toml"], "absent.toml"),
        (["--token-file", "absent"], "absent"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_served_is_refused_in_one_line(
    tmp_path: Path,
    flags: list[str],
    flag: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    assert main(["serve", *flags, *flag]) == 1
    said = capsys.readouterr().err.splitlines()
    assert message in said[-1]
    assert not any("Traceback" in line for line in said)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_an_address_that_is_taken_is_named(tmp_path: Path, flags: list[str], workers: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with serving(tmp_path, *flags, "--listen", address, "--workers", workers) as serve:
            assert serve.wait() == 1
            assert any(f"cannot listen on {address}" in line for line in serve.lines)


def test_workers_share_an_address_and_one_that_dies_is_started_again(tmp_path: Path, flags: list[str]) -> None:
    with serving(tmp_path, *flags, "--workers", "2") as serve:
        metrics = serve.wait_for(METRICS)[1]
        first = serve.wait_for(r"worker \d \(pid (\d+)\) serves")[1]
        serve.wait_for(r"worker \d \(pid (\d+)\) serves")
        endpoint = serve.wait_for(r"listening on (\S+) with 2 workers")[1]

        job = Job(Endpoint(endpoint))
        job.create()
        attempt = job.begin()
        stream = job.stream(attempt)
        stream.take_step()
        stream.take_step()
        eventually(lambda: "dataserver_steps_sealed_total 2.0" in fetch(metrics))
        assert "dataserver_workers 2.0" in fetch(metrics)
        os.kill(int(first), signal.SIGKILL)
        serve.wait_for(rf"worker \d \(pid {first}\) died with status -9; starting it again")
        serve.wait_for(r"worker \d \(pid (\d+)\) serves")
        assert "dataserver_workers 2.0" in fetch(metrics)
        assert "dataserver_worker_deaths_total 1.0" in fetch(metrics)
        job.close()
        again = Job(Endpoint(endpoint))
        assert again.shown().sealed_step >= 1
        again.close()
        serve.process.send_signal(signal.SIGTERM)
        assert serve.wait() == 0


def test_workers_end_when_their_parent_is_killed(tmp_path: Path, flags: list[str]) -> None:
    with serving(tmp_path, *flags, "--workers", "2") as serve:
        pids = [int(serve.wait_for(r"worker \d \(pid (\d+)\) serves")[1]) for _ in range(2)]
        serve.wait_for(LISTENING)
        serve.process.kill()

        def gone(pid: int) -> bool:
            try:
                return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
            except FileNotFoundError:
                return True

        eventually(lambda: all(gone(pid) for pid in pids))
