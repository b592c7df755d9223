"""A real vLLM on this machine's CPU, in a process group of its own that always ends."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
import pytest

from enginelab.models import TinyModel

REPOSITORY = Path(__file__).parents[4]
# Some 30 s on an idle machine; importing vLLM on a busy one takes minutes.
START_LIMIT_S = 600
ENVIRONMENT = {
    "VLLM_TARGET_DEVICE": "cpu",
    "VLLM_SERVER_DEV_MODE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    # Two servers on one machine fight for the same cores otherwise.
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
}
ARGUMENTS = [
    "--host=127.0.0.1",
    "--port=0",
    "--dtype=float32",
    "--enforce-eager",
    "--max-model-len=2048",
    "--max-num-seqs=8",
    "--enable-scale-out",
    '--weight-transfer-config={"backend": "dataserver"}',
    "--worker-extension-cls=orchestrator.vllm_plugin.worker.WorkerReports",
]


def vllm_python() -> str:
    """The Python of the environment with vLLM; skips the test where there is none."""
    found = os.environ.get("DATASERVER_VLLM_PYTHON", str(REPOSITORY / ".venv-vllm" / "bin" / "python"))
    if not Path(found).exists():
        pytest.skip(f"no vLLM at {found}: `make vllm` installs it")
    return found


class VllmServer:
    """`url` once it is healthy; `log` is what it said."""

    def __init__(self, model: Path, log: Path, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        self.log = log
        self._environment = {**os.environ, **ENVIRONMENT, **environment, "PYTHONPATH": str(REPOSITORY)}
        self._command = [vllm_python(), "-m", "vllm.entrypoints.openai.api_server", f"--model={model}", *ARGUMENTS]
        self._command += arguments
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                env=self._environment,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def wait(self) -> None:
        """Until it is healthy."""
        assert self._process is not None
        end_s = time.monotonic() + START_LIMIT_S
        while not (self._find_url() and self._healthy()):
            if self._process.poll() is not None or time.monotonic() > end_s:
                self.stop()
                raise RuntimeError(f"vLLM did not start: {self.log.read_text()[-4000:]}")
            time.sleep(0.5)

    def stop(self) -> None:
        """Ends the whole group: workers outlive a killed parent."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def _find_url(self) -> bool:
        assert self._process is not None
        for connection in psutil.Process(self._process.pid).net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr.ip == "127.0.0.1":
                self.url = f"http://127.0.0.1:{connection.laddr.port}"
                if self._healthy():
                    return True
        return False

    def _healthy(self) -> bool:
        try:
            return httpx.get(f"{self.url}/health", timeout=5, trust_env=False).status_code == 200
        except httpx.HTTPError:
            return False


@dataclass(frozen=True)
class Lab:
    """Servers of one model. `model`: as the trainer has it; `directory`: for whatever a test leaves behind."""

    model: TinyModel
    servers: list[VllmServer]
    directory: Path


@contextmanager
def running_vllm(
    model: Path, directory: Path, arguments: Sequence[Sequence[str]], environment: Mapping[str, str]
) -> Iterator[list[VllmServer]]:
    """Servers of one model, each with arguments of its own, started side by side. `environment` is added to ours."""
    servers = [
        VllmServer(model, directory / f"vllm{number}.log", own, environment) for number, own in enumerate(arguments)
    ]
    try:
        for server in servers:
            server.start()
        for server in servers:
            server.wait()
        yield servers
    finally:
        for server in servers:
            server.stop()
