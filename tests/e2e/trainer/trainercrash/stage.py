"""One story: a server, trainers under torchrun, and what is checked at its end."""

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc
from trainerlab.serving import write_numbered_store

from dataserver.client import DataClient
from trainer.checkpoint import Checkpoint, Checkpoints

ROWS, STEP_SAMPLES = 40, 5
STEPS = ROWS // STEP_SAMPLES
FAULTY_TRAINER = Path(__file__).parent / "faulty_trainer.py"
LIMIT_S = 280.0

CONFIG = """
[run]
name = "chat"
order = {{ sources = [{{ store = "chat" }}], max_length = 24, seed = 5 }}
batch = {{ step_samples = {step_samples}, micro_batch_tokens = 40, max_epochs = 1 }}
[model.config]
model_type = "qwen3"
vocab_size = 96
hidden_size = 32
intermediate_size = 48
num_hidden_layers = 1
num_attention_heads = 4
num_key_value_heads = 2
head_dim = 8
[optim]
lr = 1e-2
[parallel]
device = "cpu"
[checkpoint]
dir = "{directory}/checkpoints"
every_steps = 2
keep_last = 10
[metrics]
jsonl = "{directory}/metrics.jsonl"
"""


class Stage:
    """A directory with a store, a ledger, checkpoints and books; a server on one port over all its lives."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.books = directory / "books"
        self.books.mkdir()
        write_numbered_store(directory / "store", ROWS)
        (directory / "train.toml").write_text(CONFIG.format(directory=directory, step_samples=STEP_SAMPLES))
        self._kept = kept_port()
        self.endpoint = address_of(self._kept)
        (directory / "server.toml").write_text(
            f'listen = "{self.endpoint}"\nmetrics_listen = ""\nledger = "sqlite:///{directory}/ledger.db"\n'
            f'lease_s = 2.0\nindex_dir = "{directory}/indexes"\n[stores.chat]\npath = "{directory}/store"\n'
        )
        self.server: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.serve()
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, at: TracebackType | None) -> None:
        self.kill_server()
        self._kept.close()

    def serve(self) -> int:
        """Start the server, killing what is left of the one before; returns its process id once it answers."""
        self.kill_server()
        command = [str(Path(sys.executable).with_name("dataserver")), "serve", str(self.directory / "server.toml")]
        with (self.directory / "server.log").open("ab") as log:
            self.server = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            with grpc.insecure_channel(self.endpoint) as channel:
                grpc.channel_ready_future(channel).result(timeout=LIMIT_S)
        except grpc.FutureTimeoutError as error:
            self.kill_server()
            raise AssertionError((self.directory / "server.log").read_text()) from error
        return self.server.pid

    def kill_server(self) -> None:
        if self.server is not None:
            self.server.kill()
            self.server.wait()

    def start(
        self,
        ranks: int,
        *words: str,
        fault: Mapping[str, Any] | None = None,
        launch: tuple[str, ...] = ("--standalone",),
    ) -> "subprocess.Popen[str]":
        """A trainer under torchrun, or one node's `ranks` of it, as `launch` says."""
        command = [
            sys.executable, "-m", "torch.distributed.run", *launch, "--nproc-per-node", str(ranks),
            str(FAULTY_TRAINER), str(self.directory / "train.toml"), "--data-endpoint", self.endpoint, *words,
        ]  # fmt: skip
        environment = os.environ | {
            "TRAINER_BOOKS": str(self.books),
            "TRAINER_FAULT": json.dumps(fault),
            "OMP_NUM_THREADS": "1",
        }
        log = self.directory / "trainer.log"
        with log.open("ab") as out:
            return subprocess.Popen(command, stdout=out, stderr=out, env=environment, text=True)

    def train(self, ranks: int, *words: str, fault: Mapping[str, Any] | None = None) -> int:
        """Train to the end, or to the fault; returns torchrun's exit code."""
        with self.start(ranks, *words, fault=fault) as trainer:
            try:
                return trainer.wait(LIMIT_S)
            finally:
                trainer.kill()

    def train_on_two_nodes(self, *, rendezvous: bool, fault: Mapping[str, Any] | None = None) -> list[int]:
        """Two torchruns of one rank each, that meet by c10d's rendezvous or number themselves; their exit codes."""
        with kept_port() as meeting:
            host, _, port = address_of(meeting).rpartition(":")
            by_number = ("--nnodes", "2", "--master-addr", host, "--master-port", port)
            launches = [(*by_number, "--node-rank", "0"), (*by_number, "--node-rank", "1")]
            if rendezvous:
                launch = ("--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-id", "nodes")
                launches = [(*launch, "--rdzv-endpoint", f"{host}:{port}")] * 2
            nodes = [self.start(1, fault=fault, launch=launch) for launch in launches]
            try:
                return [node.wait(LIMIT_S) for node in nodes]
            finally:
                for node in nodes:
                    node.kill()
                    node.wait()

    def wait_for_step(self, step: int) -> None:
        """Until some rank's books hold the step."""
        deadline = time.monotonic() + LIMIT_S
        while not any(entry["step"] >= step for entry in self.entries()):
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.05)

    def log(self) -> str:
        """What the ranks said, without the configurations they print and torchrun's own traces."""
        text = (self.directory / "trainer.log").read_text()
        text = re.sub(r"(?ms)^(attempt \d+, configuration):\n\{\n.*?^\}\n", r"\1\n", text)
        return re.sub(r"(?m)^Traceback \(most recent call last\):\n(?:^ .*\n)+", "", text)

    def entries(self) -> list[dict[str, Any]]:
        return [json.loads(line) for book in self.books.iterdir() for line in book.read_text().splitlines()]

    def checkpoints(self) -> list[Checkpoint]:
        return Checkpoints(self.directory / "checkpoints").complete()

    def prove_exactly_once(self) -> None:
        """What is in the surviving weights, by the books, by the ledger and by the checkpoint, is the epoch, once."""
        final = self.checkpoints()[-1].record
        assert (final.step, final.cursor.epoch, final.cursor.position) in {(STEPS, 1, 0), (STEPS, 0, ROWS)}, self.log()
        with DataClient(self.endpoint, patience_s=30) as client:
            begun = [event for event in client.list_run_events("chat") if event.kind == "attempt_begun"]
            described = [client.describe_step("chat", step) for step in range(1, STEPS + 1)]
            run = client.get_run("chat")
        # Going back in time: attempt n's steps survive up to the base of the one after it.
        ends, surviving = STEPS, Counter[int]()
        for event in reversed(begun):
            for entry in self.entries():
                if entry["attempt"] == event.attempt and event.step < entry["step"] <= ends:
                    surviving.update(entry["rows"])
            ends = min(ends, event.step)
        assert surviving == Counter(range(ROWS)), self.log()
        planned = Counter(s.row for step in described for batch in step.micro_batches for s in batch.samples)
        assert planned == Counter(range(ROWS))
        assert final.attempt == begun[-1].attempt
        assert run.committed == final.cursor


def kept_port() -> socket.socket:
    """Bound to a port that nobody else gets, but a server that reuses it, again and again."""
    kept = socket.socket()
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    kept.bind(("127.0.0.1", 0))
    return kept


def address_of(kept: socket.socket) -> str:
    return f"127.0.0.1:{kept.getsockname()[1]}"
