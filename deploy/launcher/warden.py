"""Keeps one process of a job: nothing that it started outlives it, and nothing outlives the launcher.

    launcher ══stdin══> warden (session of its own, subreaper) ──> process (group of its own) ──> whatever it starts

Descendants that lose their parent, whatever session or group they moved to, become the warden's children; it kills
children until none is left. It does so when its process has ended, and when its stdin ends: because the launcher wants
it so, or because the launcher is gone, even by SIGKILL. SIGTERM is passed on to the process alone, which knows how to
end its own. The exit code is the process's, or 128 + the signal that killed it.

Runs as a script with the standard library alone, so that a process costs some milliseconds and megabytes. Linux only.
"""

import ctypes
import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

NOT_FOUND = 127
NOT_EXECUTABLE = 126
"""Exit codes that shells use."""

PASSED_ON = (signal.SIGTERM, signal.SIGINT)

libc = ctypes.CDLL(None, use_errno=True)


def main(words: list[str]) -> int:
    """Run the command to its end."""
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        print(f"warden: cannot adopt orphans: {os.strerror(ctypes.get_errno())}", flush=True)
        return 1
    wake, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker)
    for number in (*PASSED_ON, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    try:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, process_group=0, preexec_fn=_die_with_warden)  # noqa: PLW1509, S603
    except OSError as error:
        print(f"cannot start {words[0]!r}: {error.strerror}", flush=True)
        return NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
    try:
        return _watch(process.pid, wake)
    finally:
        kill_children()


def _die_with_warden() -> None:
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _watch(pid: int, wake: int) -> int:
    """Wait for the process to end, or for stdin to; the exit code."""
    while True:
        readable, _, _ = select.select([wake, sys.stdin.fileno()], [], [])
        if sys.stdin.fileno() in readable and not os.read(sys.stdin.fileno(), 1):
            return 128 + signal.SIGKILL
        if wake in readable:
            for number in set(os.read(wake, 512)) & set(PASSED_ON):
                os.kill(pid, number)
            if (code := _reap(pid)) is not None:
                return code


def _reap(pid: int) -> int | None:
    """Bury whoever has ended; the exit code of `pid`, if it is among them."""
    code = None
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == pid:
                code = os.waitstatus_to_exitcode(ended[1])
    return code if code is None or code >= 0 else 128 - code


def kill_children() -> None:
    """Kill children, and what thereby becomes a child, until there is none."""
    with suppress(ChildProcessError):
        while True:
            for pid in _children():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            os.waitpid(-1, 0)


def _children() -> list[int]:
    """Process ids of the direct children, those that have ended left out or not."""
    mine = str(os.getpid())
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                # PID (NAME) STATE PARENT ...: the name may hold anything, brackets too.
                if (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[1] == mine:
                    found.append(int(entry.name))
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
