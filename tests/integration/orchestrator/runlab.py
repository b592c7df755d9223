"""A whole run without torch: a real data server, fake engines behind HTTP, an orchestrator, and a trainer of one rank.

The trainer hands its weights over by files, as a real one does, and calls `hook(version)` between a handover and the
ack that lets the next step be sealed. Evals score by `score`, which waits for the test.
"""

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import grpc
import numpy as np
import uvloop
from safetensors.numpy import save_file

from dataserver.client import AttemptInfo, DataClient
from dataserver.hosting.signals import quiet_poller
from dataserver.run_spec import BatchSpec, OrderSpec, RunSpec, Source
from dataserver.v1.policy_version_pb2 import PolicyVersion as PolicyVersionProto
from dataserver.weight_buckets import WeightsChecksum
from dataserver.weight_sync import OrchestratorAddress, PolicyVersion, SyncOutcome, WeightSync
from orchestrator.app import Orchestrator
from orchestrator.config import OrchestratorConfig
from orchestrator.members import Member
from orchestrator.v1 import weight_transfer_service_pb2 as transfers
from orchestrator.v1.weight_transfer_service_pb2_grpc import WeightTransferServiceStub

RUN = "chat"
STEPS = 10
PATIENCE_S = 60.0

Weights = Mapping[str, np.ndarray]

# An eval of one answer ends when the test lets it.
scored = threading.Semaphore(0)


def score(_answer: str, _prompt: dict[str, Any]) -> float:
    """The scorer of the evals here."""
    if not scored.acquire(timeout=PATIENCE_S):
        raise TimeoutError("the test let nobody score")
    return 1.0


def eventually(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def run_spec(steps: int = STEPS) -> RunSpec:
    order = OrderSpec(sources=(Source(store="chat"),), max_length=64)
    return RunSpec(
        order=order, batch=BatchSpec(step_samples=2, micro_batch_tokens=128, max_steps=steps), vocab_size=1000
    )


def orchestrator_config(folder: Path, engines: dict[str, str], **fields: Any) -> OrchestratorConfig:
    """One eval of one answer at every fifth version; `engines`: urls by name."""
    prompts = folder / "prompts.jsonl"
    prompts.write_text('{"prompt": "abc", "reference": "cba"}\n')
    evals = {
        "name": "reverse",
        "interval": 5,
        "prompts": {"file": str(prompts)},
        "sampling": {"max_tokens": 4},
        "scorer": {"kind": "python", "entry_point": "runlab:score"},
    }
    return OrchestratorConfig.model_validate(
        {
            "run": {"name": RUN},
            "engines": [{"name": name, "url": url} for name, url in engines.items()],
            "pool": {"health_every_s": 0.1, "lease_s": 30},
            "serve": {"listen": "127.0.0.1:0", "metrics_listen": ""},
            "evals": [evals],
            "results": {"database": f"sqlite:///{folder}/evals.db"},
        }
        | fields
    )


class OrchestratorProcess:
    """`python -m orchestrator` in a process that can be killed."""

    def __init__(self, folder: Path, config: OrchestratorConfig, endpoint: str) -> None:
        path = folder / "orchestrator.toml"
        path.write_text(toml_of(config))
        command = [sys.executable, "-m", "orchestrator", str(path), "--data-endpoint", endpoint]
        log = (folder / "orchestrator.log").open("ab")
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        log.close()
        assert self.process.stdout is not None
        assert "listening on" in self.process.stdout.readline()

    def kill(self) -> None:
        """At once; may be repeated."""
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


def toml_of(config: OrchestratorConfig) -> str:
    """As a file says it; JSON's values are TOML's, apart from null."""
    lines = []
    for name, value in config.model_dump(mode="json", exclude_defaults=True).items():
        tables = value if isinstance(value, list) else [value]
        for table in tables:
            lines.append(f"[[{name}]]" if isinstance(value, list) else f"[{name}]")
            lines += [f"{key} = {_inline(field)}" for key, field in table.items()]
    return "\n".join(lines) + "\n"


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_inline(field)}" for key, field in value.items()) + " }"
    return json.dumps(value)


class RunningOrchestrator:
    """An orchestrator in a thread of its own, until it ends by itself or `stop` tells it to."""

    def __init__(self, config: OrchestratorConfig, endpoint: str) -> None:
        self._config = config
        self._endpoint = endpoint
        self._loop: asyncio.AbstractEventLoop | None = None
        self._orchestrator: Orchestrator | None = None
        self.fault: BaseException | None = None
        self.ready = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "RunningOrchestrator":
        self._thread.start()
        assert self.ready.wait(PATIENCE_S)
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()
        if self.fault is not None:
            raise self.fault

    def stop(self) -> None:
        if self._loop is not None and self._orchestrator is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._orchestrator.ending.set)
        self._thread.join(PATIENCE_S)

    def ended(self) -> bool:
        """Whether it ends by itself, soon."""
        self._thread.join(PATIENCE_S)
        return not self._thread.is_alive()

    @property
    def running(self) -> list[int]:
        """Versions that evals measure now."""
        reign = None if self._orchestrator is None else self._orchestrator._reign
        return [] if reign is None else [each.version.number for each in list(reign.evals.book.running)]

    @property
    def members(self) -> list[Member]:
        """Its engines."""
        return [] if self._orchestrator is None else list(self._orchestrator._pool.members)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            try:
                runner.run(self._serve())
            except BaseException as error:  # noqa: BLE001 - the test raises it
                self.fault = error
                self.ready.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(quiet_poller)
        self._orchestrator = Orchestrator(self._config, self._endpoint)
        await self._orchestrator.start()
        self.ready.set()
        try:
            await self._orchestrator.run()
        finally:
            await self._orchestrator.stop()


def plain_weights(number: int) -> Weights:
    """One array, which holds its version."""
    return {"w": np.full((4, 4), number, np.float32)}


class SmallTrainer:
    """One rank. `weights` makes those of a version, in the order in which they are sent."""

    def __init__(
        self,
        endpoint: str,
        folder: Path,
        hook: Callable[[int], None] = lambda _version: None,
        weights: Callable[[int], Weights] = plain_weights,
    ) -> None:
        self.client = DataClient(endpoint, patience_s=PATIENCE_S)
        self.synced: list[int] = []
        self.stamped: list[int] = []
        self.outcomes: list[str] = []
        self.trained: list[int] = []
        # Called in the middle of a handover: before the prepare, and between its answer and the commit.
        self.during: Callable[[str, int], None] = lambda _phase, _version: None
        self._folder = folder
        self._hook = hook
        self._weights = weights

    def train(self, *, resume: int | None = None, stop_after: int | None = None) -> None:
        attempt = self.client.begin_attempt(
            RUN,
            resume=resume is not None,
            version=resume,
            world_size=1,
            dp_world_size=1,
            holder=uuid4().hex,
            take_over=True,
        )
        first = attempt.base.step + 1
        with self.client.stream(RUN, attempt, world_rank=0, dp_rank=0, next_step=first, takes_offers=True) as stream:
            offer = stream.opening_offer()
            self._after(attempt, offer.version, offer.sync_weights, offer.orchestrator)
            stream.ack_offer(offer)
            for step in stream:
                for _ in step:
                    pass
                self.trained.append(step.number)
                version = PolicyVersion(attempt=attempt.number, number=step.number)
                self._after(attempt, version, step.sync_weights, step.orchestrator)
                if step.number == stop_after:
                    return
                stream.ack(step)
            for offer in stream.offers():
                self._after(attempt, offer.version, offer.sync_weights, offer.orchestrator)
                stream.ack_offer(offer)

    def _after(
        self, attempt: AttemptInfo, version: PolicyVersion, stamped: bool, orchestrator: OrchestratorAddress | None
    ) -> None:
        if stamped:
            self.stamped.append(version.number)
            self._report(version, *self._hand_over(attempt, version, orchestrator))
        self._hook(version.number)

    def _hand_over(
        self, attempt: AttemptInfo, version: PolicyVersion, orchestrator: OrchestratorAddress | None
    ) -> tuple[str, SyncOutcome, str]:
        sync_id = uuid4().hex
        if orchestrator is None:
            return sync_id, SyncOutcome.SKIPPED, "no orchestrator"
        try:
            with grpc.insecure_channel(orchestrator.address) as channel:
                return sync_id, *self._transfer(channel, attempt, version, orchestrator.epoch, sync_id)
        except grpc.RpcError as error:
            return sync_id, SyncOutcome.FAILED, str(error.details())

    def _transfer(
        self, channel: grpc.Channel, attempt: AttemptInfo, version: PolicyVersion, epoch: int, sync_id: str
    ) -> tuple[SyncOutcome, str]:
        stub = WeightTransferServiceStub(channel)
        directory = self._folder / f"{version}-{sync_id}"
        weights = self._weights(version.number)
        self.during("prepare", version.number)
        request = transfers.PrepareTransferRequest(
            run=RUN,
            version=PolicyVersionProto(attempt=version.attempt, number=version.number),
            attempt_id=attempt.attempt_id,
            sync_id=sync_id,
            epoch=epoch,
            transport=transfers.TRANSPORT_FILESYSTEM,
            tensors=[transfers.TensorSpec(name=n, dtype="float32", shape=w.shape) for n, w in weights.items()],
            bucket_bytes=1 << 20,
            trainer_address="127.0.0.1:9",
            directory=str(directory),
        )
        answer = stub.PrepareTransfer(request, timeout=PATIENCE_S)
        if answer.WhichOneof("answer") == "refused":
            return SyncOutcome.SKIPPED, transfers.RefusalReason.Name(answer.refused.reason)
        self.during("send", version.number)
        checksum = write_weights(directory, weights)
        commit = transfers.CommitTransferRequest(run=RUN, sync_id=sync_id, checksum=checksum)
        outcomes = stub.CommitTransfer(commit, timeout=PATIENCE_S).engines
        if any(outcome.landed for outcome in outcomes):
            self.synced.append(version.number)
            return SyncOutcome.LANDED, ""
        return SyncOutcome.FAILED, "; ".join(outcome.detail for outcome in outcomes)

    def _report(self, version: PolicyVersion, sync_id: str, outcome: SyncOutcome, detail: str) -> None:
        self.outcomes.append(f"{version.number} {outcome.value} {detail}".strip())
        sync = WeightSync(sync_id=sync_id, version=version, outcome=outcome, detail=detail)
        self.client.report_sync(RUN, sync)


def write_weights(directory: Path, weights: Weights) -> str:
    """One bucket of weights as a file, and its marker; returns the checksum."""
    directory.mkdir(parents=True)
    save_file(dict(weights), directory / "00000.part")
    (directory / "00000.part").rename(directory / "00000.safetensors")
    (directory / "weights.json").write_text(json.dumps({}))
    return checksum_of(weights)


def checksum_of(weights: Weights) -> str:
    checksum = WeightsChecksum()
    for weight in weights.values():
        checksum.add(memoryview(weight.tobytes()))
    return checksum.hexdigest()
