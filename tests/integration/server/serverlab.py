"""Ranks on the generated stubs alone, so that the server is tested without the client."""

import queue
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import grpc
from prometheus_client.parser import text_string_to_metric_families

from dataserver.testing import RunningServer
from dataserver.v1 import batch_service_pb2 as pb
from dataserver.v1 import run_pb2, run_service_pb2, run_spec_pb2
from dataserver.v1.batch_service_pb2_grpc import BatchServiceStub
from dataserver.v1.run_service_pb2_grpc import RunServiceStub
from dataserver.wire.status import error_of

PATIENCE_S = 60.0
LENGTHS = [5, 9, 4, 30, 17, 8, 12, 40, 22, 13] * 3
ENDED = object()


def eventually(ready: Callable[[], object], limit_s: float = PATIENCE_S) -> None:
    """Return once `ready()` is true."""
    deadline = time.monotonic() + limit_s
    while not ready():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.005)


def one_by_one(message: pb.StreamMicroBatchesResponse) -> list[pb.StreamMicroBatchesResponse]:
    """A response with several micro-batches as responses of one."""
    found = [pb.StreamMicroBatchesResponse(micro_batches=[one]) for one in message.micro_batches]
    return found or [message]


class Rank:
    """A stream of one rank. Messages that arrive wait in a queue; so does the error that ends the stream."""

    def __init__(self, channel: grpc.Channel, opened: pb.Open) -> None:
        self._requests: queue.SimpleQueue = queue.SimpleQueue()
        self.received: queue.SimpleQueue = queue.SimpleQueue()
        self._requests.put(pb.StreamMicroBatchesRequest(open=opened))
        self.call = BatchServiceStub(channel).StreamMicroBatches(iter(self._requests.get, None))
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        try:
            for message in self.call:
                for part in one_by_one(message):
                    self.received.put(part)
            self.received.put(ENDED)
        except grpc.RpcError as error:
            self.received.put(error)

    def take(self, kind: str):
        """The next message, which is of `kind`."""
        message = self.received.get(timeout=PATIENCE_S)
        assert isinstance(message, pb.StreamMicroBatchesResponse), message
        if kind == "micro_batch":
            (micro_batch,) = message.micro_batches
            return micro_batch
        assert message.WhichOneof("message") == kind, message
        return getattr(message, kind)

    def take_step(self, *, grant: bool = True):
        """The next step: its `step_begun` and its micro-batches."""
        begun = self.take("step_begun")
        micro_batches = [self.take("micro_batch") for _ in range(begun.rounds)]
        if grant:
            self.credit(begun.rounds)
        return begun, micro_batches

    def ack(self, step: int) -> None:
        self._requests.put(pb.StreamMicroBatchesRequest(ack=pb.Ack(step=step)))

    def credit(self, count: int) -> None:
        self._requests.put(pb.StreamMicroBatchesRequest(credit=pb.Credit(micro_batches=count)))

    def send(self, request: pb.StreamMicroBatchesRequest) -> None:
        self._requests.put(request)

    def half_close(self) -> None:
        """Say that nothing more comes, and see the stream end well; what is still under way is passed over."""
        self._requests.put(None)
        while isinstance(message := self.received.get(timeout=PATIENCE_S), pb.StreamMicroBatchesResponse):
            pass
        assert message is ENDED, message

    def error(self) -> grpc.RpcError:
        """The error that ends the stream; messages before it are passed over."""
        while True:
            message = self.received.get(timeout=PATIENCE_S)
            if isinstance(message, grpc.RpcError):
                return message
            assert message is not ENDED, "the stream ended well"

    def cancel(self) -> None:
        self._requests.put(None)
        self.call.cancel()
        self._reader.join(PATIENCE_S)


class Job:
    """What a trainer's rank 0 does, and streams for all ranks."""

    def __init__(self, server: RunningServer, run: str = "run") -> None:
        self.server = server
        self.run = run
        self._open: list[Rank] = []
        self.attempt_ids: dict[int, str] = {}
        self._channels: list[grpc.Channel] = []
        self.channel = self.connect(server)
        self.runs = RunServiceStub(self.channel)

    def connect(self, server: RunningServer) -> grpc.Channel:
        channel = grpc.insecure_channel(server.endpoint, [("grpc.use_local_subchannel_pool", 1)])
        self._channels.append(channel)
        return channel

    def create(self, store: str = "chat", **batch) -> run_pb2.Run:
        spec = run_spec_pb2.RunSpec(order=order_spec(store), batch=batch_spec(**batch))
        return self.runs.CreateRun(run_service_pb2.CreateRunRequest(name=self.run, spec=spec), timeout=PATIENCE_S).run

    def begin(self, world_size: int = 1, dp_world_size: int = 0, **fields) -> int:
        """Begin an attempt; return its number."""
        request = {"mode": run_service_pb2.BEGIN_MODE_START, "holder": "holder"} | fields
        answer = self.runs.BeginAttempt(
            run_service_pb2.BeginAttemptRequest(
                run=self.run, world_size=world_size, dp_world_size=dp_world_size or world_size, **request
            ),
            timeout=PATIENCE_S,
        )
        self.attempt_ids[answer.attempt.number] = answer.attempt.attempt_id
        return answer.attempt.number

    def begin_error(self, **fields) -> Exception | None:
        """What `begin` is refused with, or None once it is not."""
        try:
            self.begin(**fields)
        except grpc.RpcError as error:
            return error_of(error)
        return None

    def shown(self) -> run_pb2.Run:
        return self.runs.GetRun(run_service_pb2.GetRunRequest(run=self.run), timeout=PATIENCE_S).run

    def open(
        self, attempt: int = 1, rank: int = 0, *, dp_rank: int | None = None, next_step: int = 1, credits: int = 64,  # noqa: A002 - the contract's word
        server: RunningServer | None = None,
    ) -> Rank:  # fmt: skip
        opened = pb.Open(
            purpose=pb.PURPOSE_TRAIN,
            run=self.run,
            attempt=attempt,
            attempt_id=self.attempt_ids.get(attempt, "never issued"),
            world_rank=rank,
            dp_rank=rank if dp_rank is None else dp_rank,
            next_step=next_step,
            credits=credits,
        )
        stream = Rank(self.channel if server is None else self.connect(server), opened)
        self._open.append(stream)
        return stream

    def stream(self, *arguments, **fields) -> Rank:
        """`open`, and see it accepted."""
        stream = self.open(*arguments, **fields)
        stream.take("opened")
        return stream

    def close(self) -> None:
        for stream in self._open:
            stream.cancel()
        for channel in self._channels:
            channel.close()


def order_spec(store: str = "chat", **fields) -> run_spec_pb2.OrderSpec:
    defaults = {
        "seed": 7,
        "shuffle": run_spec_pb2.SHUFFLE_FULL,
        "max_length": 64,
        "long_rows": run_spec_pb2.LONG_ROWS_TRUNCATE,
    }
    return run_spec_pb2.OrderSpec(sources=[run_spec_pb2.Source(store=store)], **defaults | fields)


def batch_spec(**fields) -> run_spec_pb2.BatchSpec:
    defaults = {
        "micro_batch_tokens": 64,
        "policy": run_spec_pb2.PACKING_POLICY_BALANCED,
        "alignment": 1,
        "lookahead_steps": 1,
        "cost_linear": 1,
    }
    if "step_samples" not in fields:
        defaults["step_tokens"] = 128
    return run_spec_pb2.BatchSpec(**defaults | fields)


def metric(server: RunningServer, name: str, **labels: str) -> float:
    """A sample of /metrics; 0 where there is none yet."""
    page = urllib.request.urlopen(f"http://{server.metrics_endpoint}/metrics", timeout=PATIENCE_S).read().decode()
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            if sample.name == name and labels.items() <= sample.labels.items():
                return sample.value
    return 0.0


@contextmanager
def job_on(server: RunningServer, run: str = "run") -> Iterator[Job]:
    job = Job(server, run)
    try:
        yield job
    finally:
        job.close()
