"""Where a crash happens and whom it hits: SIGKILL, once, at a named point of a step."""

import mmap
import os
import signal
import struct
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

MAX_SERVERS = 2
MAX_RANKS = 4
PID_BYTES = 8


class Point(StrEnum):
    """A point in the life of a step."""

    BEFORE_SEAL = "before_seal"
    AFTER_SEAL = "after_seal"
    MID_STREAM = "mid_stream"
    AFTER_OPTIMIZER_STEP = "after_optimizer_step"
    INSIDE_CHECKPOINT = "inside_checkpoint"
    BEFORE_COMMIT = "before_commit"
    AFTER_COMMIT = "after_commit"
    # At the server, around the ledger's own transaction: the request or its answer is lost.
    BEGIN_NOT_WRITTEN = "begin_not_written"
    BEGIN_NOT_ANSWERED = "begin_not_answered"
    OPEN_NOT_WRITTEN = "open_not_written"
    OPEN_NOT_ANSWERED = "open_not_answered"
    ACKS_NOT_WRITTEN = "acks_not_written"
    ACKS_NOT_ANSWERED = "acks_not_answered"
    COMMIT_NOT_WRITTEN = "commit_not_written"
    COMMIT_NOT_ANSWERED = "commit_not_answered"


class Victim(StrEnum):
    """Whom a crash kills."""

    SERVER = "server"
    ONE_RANK = "one_rank"
    ALL_RANKS = "all_ranks"
    BOTH = "both"


@dataclass(frozen=True, slots=True, kw_only=True)
class Crash:
    """Kill `victim` when the first process reaches `point` of `step`. `rank` is the one for ONE_RANK."""

    point: Point
    step: int
    victim: Victim
    rank: int = 0


class Processes:
    """Process ids of a job's members, in memory that they all share."""

    def __init__(self) -> None:
        self._shared = mmap.mmap(-1, (MAX_SERVERS + MAX_RANKS) * PID_BYTES)

    def note_server(self, index: int, pid: int) -> None:
        self._write(index, pid)

    def note_rank(self, rank: int, pid: int) -> None:
        self._write(MAX_SERVERS + rank, pid)

    def server(self, index: int = 0) -> int:
        return self._read(index)

    def rank(self, rank: int) -> int:
        return self._read(MAX_SERVERS + rank)

    def forget_ranks(self) -> None:
        for rank in range(MAX_RANKS):
            self.note_rank(rank, 0)

    def _write(self, slot: int, pid: int) -> None:
        struct.pack_into("q", self._shared, slot * PID_BYTES, pid)

    def _read(self, slot: int) -> int:
        return struct.unpack_from("q", self._shared, slot * PID_BYTES)[0]


class Trigger:
    """Kills the victims of `crash` when its point is reached; the file `fired` says that it did."""

    def __init__(self, crash: Crash | None, processes: Processes, fired: Path) -> None:
        self._crash = crash
        self._processes = processes
        self._fired = fired

    @property
    def fired(self) -> bool:
        return self._fired.exists()

    def reach(self, point: Point, step: int) -> None:
        """Say that this process is at `point` of `step`."""
        if self._crash is not None and step == self._crash.step:
            self._fire(point)

    def reach_up_to(self, point: Point, step: int) -> None:
        """Say that this process is at `point` of `step`, which stands for all steps before it, as an ack does."""
        if self._crash is not None and step >= self._crash.step:
            self._fire(point)

    def _fire(self, point: Point) -> None:
        if self._crash is None or point != self._crash.point:
            return
        try:
            os.close(os.open(self._fired, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        victims = self._victims()
        for pid in sorted(victims, key=lambda pid: pid == os.getpid()):
            os.kill(pid, signal.SIGKILL)

    def _victims(self) -> set[int]:
        server = {self._processes.server()}
        ranks = {self._processes.rank(rank) for rank in range(MAX_RANKS)} - {0}
        return {
            Victim.SERVER: server,
            Victim.ONE_RANK: {self._processes.rank(self._crash.rank)},
            Victim.ALL_RANKS: ranks,
            Victim.BOTH: server | ranks,
        }[self._crash.victim]
