"""The same run sends the same bytes: on another server, after a rewind, with other credits, over a restart."""

from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

import grpc
import pytest

from dataserver.client import DataClient
from dataserver.cursor import Cursor
from dataserver.run_spec import BatchSpec, OrderSpec, RunSpec, Source
from dataserver.testing import RunningServer, running_server, write_store
from dataserver.v1 import batch_service_pb2 as pb
from dataserver.wire.messages import cursor_from_proto

RANKS = 2
LENGTHS = [3 + row * 11 % 29 for row in range(60)]
STREAM = "/dataserver.v1.BatchService/StreamMicroBatches"

# By step and rank: its `step_begun` and its micro-batches, as they came over the wire.
Sent = dict[tuple[int, int], list[bytes]]


@pytest.fixture
def chat(tmp_path: Path) -> Path:
    return write_store(tmp_path / "chat", lengths=LENGTHS, format="parquet")


def spec(seed: int = 9) -> RunSpec:
    return RunSpec(
        order=OrderSpec(sources=(Source(store="chat"),), seed=seed, max_length=24),
        batch=BatchSpec(step_tokens=160, micro_batch_tokens=48, alignment=4, lookahead_steps=3, max_epochs=2),
    )


def record(
    server: RunningServer,
    spec: RunSpec,
    *,
    resume: Cursor | None = None,
    granted: int = 64,
) -> Sent:
    """What one attempt sends to all its ranks, to the end of the run. Ranks acknowledge whatever comes."""
    with DataClient(server.endpoint, patience_s=20.0) as client:
        client.create_run("run", spec)
        attempt = client.begin_attempt(
            "run",
            resume=resume is not None,
            cursor=resume,
            world_size=RANKS,
            dp_world_size=RANKS,
            holder="first" if resume is None else "second",
        )
    first = attempt.base.step + 1
    opens = [
        pb.Open(
            purpose=pb.PURPOSE_TRAIN,
            run="run",
            attempt=attempt.number,
            attempt_id=attempt.attempt_id,
            world_rank=rank,
            dp_rank=rank,
            next_step=first,
            credits=granted,
        )
        for rank in range(RANKS)
    ]
    with ThreadPoolExecutor(RANKS) as ranks:
        parts = list(ranks.map(lambda opened: record_rank(server.endpoint, opened), opens))
    return {key: messages for part in parts for key, messages in part.items()}


def record_rank(endpoint: str, opened: pb.Open) -> Sent:
    outbox: SimpleQueue[pb.StreamMicroBatchesRequest | None] = SimpleQueue()
    outbox.put(pb.StreamMicroBatchesRequest(open=opened))
    sent: Sent = defaultdict(list)
    with grpc.insecure_channel(endpoint) as channel:
        method = channel.stream_stream(STREAM, pb.StreamMicroBatchesRequest.SerializeToString, None)
        step, missing = 0, 0
        for data in method(iter(outbox.get, None), timeout=60):
            response = pb.StreamMicroBatchesResponse.FromString(data)
            if response.HasField("step_begun"):
                step, missing = response.step_begun.step, response.step_begun.rounds
                sent[step, opened.world_rank].append(data)
            elif count := len(response.micro_batches):
                # How many come in one message is a matter of chance.
                sent[step, opened.world_rank] += [
                    pb.StreamMicroBatchesResponse(micro_batches=[one]).SerializeToString(deterministic=True)
                    for one in response.micro_batches
                ]
                missing -= count
                outbox.put(pb.StreamMicroBatchesRequest(credit=pb.Credit(micro_batches=count)))
                if missing == 0:
                    outbox.put(pb.StreamMicroBatchesRequest(ack=pb.Ack(step=step)))
            elif response.HasField("end_of_run"):
                outbox.put(None)
    return dict(sent)


def end_of(sent: Sent, step: int) -> Cursor:
    return cursor_from_proto(pb.StreamMicroBatchesResponse.FromString(sent[step, 0][0]).step_begun.end)


def test_the_same_run_on_two_servers_sends_the_same_bytes(chat: Path):
    with running_server({"chat": chat}) as one, running_server({"chat": chat}) as other:
        first, second = record(one, spec()), record(other, spec())
    assert len(first) > 2 * RANKS
    assert first == second


def test_another_seed_sends_other_bytes(chat: Path):
    with running_server({"chat": chat}) as one, running_server({"chat": chat}) as other:
        assert record(one, spec()) != record(other, spec(seed=10))


def test_credits_decide_when_bytes_are_sent_and_never_which(chat: Path):
    with running_server({"chat": chat}) as one, running_server({"chat": chat}) as other:
        assert record(one, spec(), granted=1) == record(other, spec(), granted=1000)


def test_a_step_is_sent_again_with_the_same_bytes_after_a_resume_inside_a_window(chat: Path):
    with running_server({"chat": chat}) as server:
        first = record(server, spec())
        cursor = end_of(first, 5)
        assert cursor.window is not None
        again = record(server, spec(), resume=cursor)
    assert again == {key: messages for key, messages in first.items() if key[0] > 5}


def test_a_store_in_arrow_sends_the_micro_batches_of_the_same_rows_in_parquet(chat: Path, tmp_path: Path):
    arrow = write_store(tmp_path / "arrow", lengths=LENGTHS, format="arrow", shards=3)
    with running_server({"chat": chat}) as one, running_server({"chat": arrow}) as other:
        first, second = record(one, spec()), record(other, spec())
    assert {key: messages[1:] for key, messages in first.items()} == {
        key: messages[1:] for key, messages in second.items()
    }
