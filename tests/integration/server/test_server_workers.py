"""Workers that are killed at random while ranks stream from them: every sample once, whoever serves it."""

import itertools
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from dataserver.client import DataClient
from dataserver.run_spec import BatchSpec, OrderSpec, RunSpec, Source
from dataserver.testing import write_store

ROWS, RANKS, LIMIT_S = 1200, 3, 100.0
# At the end of these steps a worker is killed; there are fifty.
KILLS = (5, 15, 25)
SPEC = RunSpec(
    order=OrderSpec(sources=(Source(store="chat"),), max_length=8),
    batch=BatchSpec(step_tokens=96, micro_batch_tokens=16, max_epochs=1),
)


class Server:
    """`dataserver serve --workers 2`; knows the pids of its workers."""

    def __init__(self, directory: Path, store: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "dataserver.cli.main", "serve", "--store", f"chat={store}", "--workers", "2",
             "--ledger", f"sqlite:///{directory}/ledger.db", "--listen", "127.0.0.1:0", "--metrics-listen", ""],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        self.endpoint = ""
        self.pids: dict[str, int] = {}
        self.news = threading.Condition()
        self.listening = threading.Event()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        for line in self.process.stdout:
            words = line.split()
            if line.rstrip().endswith(") serves"):
                with self.news:
                    self.pids[words[words.index("worker") + 1]] = int(words[words.index("(pid") + 1].rstrip(")"))
                    self.news.notify()
            if line.startswith("listening on"):
                self.endpoint = words[2]
                self.listening.set()

    def kill_a_worker(self, chooser: random.Random) -> None:
        """One that serves."""
        with self.news:
            assert self.news.wait_for(lambda: self.pids, LIMIT_S)
            os.kill(self.pids.pop(chooser.choice(sorted(self.pids))), signal.SIGKILL)

    def close(self) -> int:
        self.process.terminate()
        status = self.process.wait(60)
        self.reader.join(60)
        self.process.stdout.close()
        return status


@pytest.mark.slow
def test_workers_that_are_killed_at_random_cost_no_sample_and_repeat_none(tmp_path: Path) -> None:
    rows = [([number % 1000, number // 1000, 1, 2], [0, 1, 1, 1]) for number in range(ROWS)]
    server = Server(tmp_path, write_store(tmp_path / "chat", rows=rows))
    try:
        assert server.listening.wait(LIMIT_S)
        with DataClient(server.endpoint) as client:
            client.create_run("run", SPEC)
            attempt = client.begin_attempt(
                "run", resume=False, cursor=None, version=None, world_size=RANKS, dp_world_size=RANKS, batch=None,
                holder="test", take_over=False,
            )  # fmt: skip
        seen: list[int] = []
        steps_done = itertools.count(1)
        chooser = random.Random(1)

        def end_step() -> None:
            if next(steps_done) in KILLS:
                server.kill_a_worker(chooser)

        together = threading.Barrier(RANKS, action=end_step)

        def train(rank: int) -> None:
            with (
                DataClient(server.endpoint) as client,
                client.stream("run", attempt, world_rank=rank, dp_rank=rank, next_step=1) as steps,
            ):
                for step in steps:
                    for micro_batch in step:
                        starts = micro_batch.cu_seqlens[:-1]
                        seen.extend((micro_batch.tokens[starts] + 1000 * micro_batch.tokens[starts + 1]).tolist())
                    together.wait(LIMIT_S)
                    steps.ack(step)

        ranks = [threading.Thread(target=train, args=(rank,), daemon=True) for rank in range(RANKS)]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join(LIMIT_S)
            assert not rank.is_alive()
        assert next(steps_done) > max(KILLS)
        assert sorted(seen) == list(range(ROWS))
        assert server.close() == 0
    finally:
        server.process.kill()
        server.process.wait()
