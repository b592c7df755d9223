"""slurmctld and slurmd in the foreground, with everything they write in one directory."""

import getpass
import os
import re
import shutil
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Self

PROGRAMS = ("slurmctld", "slurmd", "sbatch", "srun", "scancel", "scontrol", "squeue", "sinfo")
LIMIT_S = 120.0
PATH = f"{os.environ['PATH']}:/usr/sbin"

CONFIGURATION = """\
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
AuthType=auth/none
CredType=cred/none
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/slurmd.pid
SlurmctldLogFile={directory}/slurmctld.log
SlurmdLogFile={directory}/slurmd.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SchedulerType=sched/builtin
ReturnToService=2
KillWait=30
MailProg=/bin/true
NodeName={host} NodeAddr=127.0.0.1 CPUs=1 RealMemory=100
PartitionName=all Nodes={host} Default=YES OverSubscribe=FORCE:8
"""


def missing_programs() -> list[str]:
    return [name for name in PROGRAMS if shutil.which(name, path=PATH) is None]


class Cluster:
    """A Slurm that runs within the block."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.environment = {**os.environ, "PATH": PATH, "SLURM_CONF": str(directory / "slurm.conf")}
        self._daemons: list[subprocess.Popen[bytes]] = []

    def submit(self, script: Path, *arguments: object) -> int:
        """Hand a batch script in; the job's number. Its output goes to `output(number)`."""
        command = ["sbatch", f"--output={self.directory}/%j.log", str(script), *map(str, arguments)]
        return int(re.search(r"batch job (\d+)", self.call(*command))[1])

    def output(self, number: int) -> Path:
        return self.directory / f"{number}.log"

    def end(self, number: int) -> tuple[str, int, int]:
        """State, exit code and signal of a job, once it has ended."""
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline:
            shown = self.call("scontrol", "show", "job", str(number))
            state = re.search(r"JobState=(\w+)", shown)[1]
            if state not in {"PENDING", "RUNNING", "COMPLETING", "CONFIGURING"}:
                code, number_of_signal = re.search(r"ExitCode=(\d+):(\d+)", shown).groups()
                return state, int(code), int(number_of_signal)
            time.sleep(0.2)
        raise AssertionError(f"job {number} has not ended:\n{shown}\n{self.logs}")

    def call(self, *command: str) -> str:
        done = subprocess.run(command, env=self.environment, cwd=self.directory, capture_output=True, text=True)
        assert done.returncode == 0, f"{command}: {done.stderr}\n{self.logs}"
        return done.stdout

    @property
    def logs(self) -> str:
        return "\n".join(log.read_text()[-2000:] for log in sorted(self.directory.glob("*.log")))

    def __enter__(self) -> Self:
        for name in ("state", "spool"):
            (self.directory / name).mkdir()
        self._kept = [kept_port() for _ in range(2)]
        controller_port, node_port = (kept.getsockname()[1] for kept in self._kept)
        text = CONFIGURATION.format(
            host=socket.gethostname().partition(".")[0], user=getpass.getuser(), directory=self.directory,
            controller_port=controller_port, node_port=node_port,
        )  # fmt: skip
        (self.directory / "slurm.conf").write_text(text)
        for daemon in ("slurmctld", "slurmd"):
            log = (self.directory / f"{daemon}.out").open("wb")
            command = [shutil.which(daemon, path=PATH), "-D"]
            self._daemons.append(
                subprocess.Popen(command, env=self.environment, stdout=log, stderr=log, start_new_session=True)
            )
            log.close()
        deadline = time.monotonic() + LIMIT_S
        while "idle" not in self._state():
            assert time.monotonic() < deadline, f"the node does not come up:\n{self.logs}"
            time.sleep(0.2)
        return self

    def _state(self) -> str:
        done = subprocess.run(
            ["sinfo", "--noheader", "--format=%t"], env=self.environment, capture_output=True, text=True
        )
        return done.stdout

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for daemon in reversed(self._daemons):
            daemon.terminate()
            try:
                daemon.wait(LIMIT_S)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        for kept in self._kept:
            kept.close()


def kept_port() -> socket.socket:
    """Bound to a port that nobody else gets, but a server that reuses it; Slurm cannot be told to take any."""
    kept = socket.socket()
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    kept.bind(("", 0))
    return kept
