"""The processes of a job end with it, however it ends."""

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

LIMIT_MS = 100_000


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_a_killed_job_leaves_no_process_behind(chatml, tmp_path):
    (tmp_path / "chats.jsonl").write_text('{"prompt": "one two three", "completion": "four five six"}\n' * 60_000)
    words = [tmp_path / "chats.jsonl", "--tokenizer", chatml, "--out", tmp_path / "out", "--processes", 2]
    command = [sys.executable, "-m", "dataserver.cli.main", "store", "render", *map(str, words)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as job:
        while not list(tmp_path.glob("out.rendering-*/*.json")):
            assert job.poll() is None
            os.sched_yield()
        children = [os.pidfd_open(child) for child in children_of(job.pid)]
        os.kill(job.pid, signal.SIGKILL)
    assert len(children) >= 2
    ended = select.poll()
    for child in children:
        ended.register(child, select.POLLIN)
    while children:
        found = [descriptor for descriptor, _ in ended.poll(LIMIT_MS)]
        assert found, "a process waits for work that nobody will give it"
        for descriptor in found:
            ended.unregister(descriptor)
            children.remove(descriptor)
            os.close(descriptor)
