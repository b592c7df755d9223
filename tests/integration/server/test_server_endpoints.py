"""What operators look at: reflection, channelz, metrics, stores, events."""

import subprocess
import sys
from pathlib import Path

import grpc
import pytest
from grpc_channelz.v1 import channelz_pb2, channelz_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from serverlab import LENGTHS, PATIENCE_S, Job, eventually, job_on, metric

from dataserver.testing import RunningServer, running_server, write_store
from dataserver.v1 import cursor_service_pb2, run_service_pb2, store_service_pb2
from dataserver.v1.cursor_service_pb2_grpc import CursorServiceStub
from dataserver.v1.store_service_pb2_grpc import StoreServiceStub


def test_reflection_lists_and_describes_every_service(job: Job) -> None:
    database = ProtoReflectionDescriptorDatabase(job.channel)
    assert set(database.get_services()) == {
        "dataserver.v1.BatchService",
        "dataserver.v1.CursorService",
        "dataserver.v1.RunService",
        "dataserver.v1.StoreService",
        "dataserver.v1.WeightSyncService",
        "grpc.channelz.v1.Channelz",
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
    }
    for service in database.get_services():
        assert database.FindFileContainingSymbol(service).service


def test_grpcurl_shows_a_run_by_reflection_alone(job: Job) -> None:
    job.create()
    answer = subprocess.run(
        [Path(sys.executable).parent / "grpcurl", "-plaintext", "-d", '{"run": "run"}', job.server.endpoint,
         "dataserver.v1.RunService/GetRun"],
        capture_output=True, text=True, check=True, timeout=PATIENCE_S,
    )  # fmt: skip
    assert f'"epoch_samples": "{len(LENGTHS)}"' in answer.stdout


def test_channelz_shows_the_server(job: Job) -> None:
    servers = channelz_pb2_grpc.ChannelzStub(job.channel).GetServers(
        channelz_pb2.GetServersRequest(), timeout=PATIENCE_S
    )
    assert servers.server


def test_metrics_tell_what_was_sent_and_what_is_waited_for(server: RunningServer, job: Job) -> None:
    job.create()
    stream = job.stream(job.begin())
    sent = [micro_batch for _ in range(2) for micro_batch in stream.take_step()[1]]
    stream.ack(1)
    sent += stream.take_step()[1]
    eventually(lambda: metric(server, "dataserver_waiting_streams", cause="pacing") == 1)
    assert metric(server, "dataserver_steps_sealed_total") == 3
    assert metric(server, "dataserver_sealed_step", run="run") == 3
    eventually(lambda: metric(server, "dataserver_consumed_step", run="run") == 1)
    assert metric(server, "dataserver_micro_batches_sent_total") == len(sent)
    assert metric(server, "dataserver_tokens_sent_total") == sum(sum(mb.lengths) for mb in sent)
    assert metric(server, "dataserver_bytes_sent_total") > sum(mb.ByteSize() for mb in sent)
    assert metric(server, "dataserver_open_streams") == 1
    assert 0 < metric(server, "dataserver_packing", run="run", figure="token_efficiency") <= 1
    assert metric(server, "dataserver_packing", run="run", figure="round_inflation") >= 1
    assert metric(server, "dataserver_work_seconds_count", kind="plan") >= 3
    assert metric(server, "dataserver_work_seconds_count", kind="encode") >= 3
    assert metric(server, "dataserver_store_rows", store="chat") == len(LENGTHS)
    assert metric(server, "dataserver_store_tokens", store="chat") == sum(LENGTHS)
    assert metric(server, "process_resident_memory_bytes") > 0
    stream.half_close()
    assert metric(server, "dataserver_open_streams") == 0
    assert metric(server, "dataserver_requests_total", method="BatchService/StreamMicroBatches", status="OK") == 1


def test_metrics_of_a_deleted_run_go_with_it(serve) -> None:
    server = serve(lease_s=1.0)
    with job_on(server) as job:
        job.create()
        stream = job.stream(job.begin())
        stream.take_step()
        stream.half_close()
        job.runs.DeleteRun(run_service_pb2.DeleteRunRequest(run="run"), timeout=PATIENCE_S)
        assert metric(server, "dataserver_sealed_step", run="run") == 0


def test_a_described_step_is_what_the_ranks_get(job: Job) -> None:
    job.create()
    streams = [job.stream(job.begin(world_size=2), 0), job.stream(1, 1)]
    cursors = CursorServiceStub(job.channel)
    for step in (1, 2):
        sent = [stream.take_step() for stream in streams]
        shown = cursors.DescribeStep(cursor_service_pb2.DescribeStepRequest(run="run", step=step), timeout=PATIENCE_S)
        assert shown.plan_digest == sent[0][0].plan_digest
        assert shown.attempt == 1
        assert shown.end == sent[0][0].end
        planned = {(mb.round, mb.dp_rank): [sample.length for sample in mb.samples] for mb in shown.micro_batches}
        assert planned == {(mb.round, rank): list(mb.lengths) for rank, (_, mbs) in enumerate(sent) for mb in mbs}
        for micro_batch in shown.micro_batches:
            assert all(LENGTHS[sample.row] == sample.length for sample in micro_batch.samples)


def test_a_step_described_for_other_ranks_than_it_was_sealed_for_names_no_attempt(job: Job) -> None:
    job.create()
    attempt = job.begin(world_size=2)
    streams = [job.stream(attempt, rank) for rank in range(2)]
    begun, _ = streams[0].take_step()
    cursors = CursorServiceStub(job.channel)
    for ranks, sealed_by in ((2, attempt), (1, 0), (4, 0)):
        request = cursor_service_pb2.DescribeStepRequest(run="run", step=1, dp_world_size=ranks)
        shown = cursors.DescribeStep(request, timeout=PATIENCE_S)
        assert (shown.attempt, shown.dp_world_size) == (sealed_by, ranks)
        assert (shown.plan_digest == begun.plan_digest) == (ranks == 2)


def test_a_step_ahead_is_described_as_it_will_be(job: Job) -> None:
    job.create()
    attempt = job.begin()
    request = cursor_service_pb2.DescribeStepRequest(run="run", step=4)
    ahead = CursorServiceStub(job.channel).DescribeStep(request, timeout=PATIENCE_S)
    assert ahead.attempt == 0
    stream = job.stream(attempt)
    for step in range(1, 5):
        begun, _ = stream.take_step()
        stream.ack(step)
    assert begun.plan_digest == ahead.plan_digest
    assert begun.end == ahead.end


def test_a_step_of_an_earlier_attempt_is_described_as_it_was_sealed(job: Job) -> None:
    job.create()
    stream = job.stream(job.begin(world_size=2, dp_world_size=2), 0), job.stream(1, 1)
    begun, _ = stream[0].take_step()
    stream[1].take_step()
    for rank in stream:
        rank.ack(1)
    cursors = CursorServiceStub(job.channel)
    cursors.CommitCursor(
        cursor_service_pb2.CommitCursorRequest(
            run="run", attempt=1, attempt_id=job.attempt_ids[1], cursor=begun.end, checkpoint_uri="file:///c1"
        ),
        timeout=PATIENCE_S,
    )
    job.begin(mode=run_service_pb2.BEGIN_MODE_RESUME, cursor=begun.end, take_over=True, holder="another")
    shown = cursors.DescribeStep(cursor_service_pb2.DescribeStepRequest(run="run", step=1), timeout=PATIENCE_S)
    assert (shown.attempt, shown.dp_world_size, shown.plan_digest) == (1, 2, begun.plan_digest)
    events = job.runs.ListRunEvents(run_service_pb2.ListRunEventsRequest(run="run"), timeout=PATIENCE_S).events
    assert [event.kind for event in events][:3] == ["created", "attempt_begun", "committed"]
    commits = cursors.ListCursors(cursor_service_pb2.ListCursorsRequest(run="run"), timeout=PATIENCE_S).commits
    assert [(commit.cursor.step, commit.checkpoint_uri) for commit in commits] == [(1, "file:///c1")]


def test_pages_of_runs_follow_one_another(job: Job) -> None:
    names = [f"run-{number}" for number in range(5)]
    for name in names:
        job.run = name
        job.create()
    found, token, pages = [], "", 0
    while pages == 0 or token:
        answer = job.runs.ListRuns(run_service_pb2.ListRunsRequest(page_size=2, page_token=token), timeout=PATIENCE_S)
        found += [run.name for run in answer.runs]
        token, pages = answer.next_page_token, pages + 1
    assert (found, pages) == (names, 3)


@pytest.mark.parametrize("kind", ["arrow", "parquet"])
def test_stores_and_their_rows_are_shown(tmp_path: Path, kind) -> None:
    rows = [([1, 2, 3], [0, 1, 1]), ([], []), ([9, 9, 70000], [0, 0, 1]), ([5, 6], [1, 0])]
    write_store(tmp_path / "odd", rows=rows, format=kind, shards=2)
    with running_server({"odd": tmp_path / "odd"}) as server, job_on(server) as job:
        stores = StoreServiceStub(job.channel)
        listed = stores.ListStores(store_service_pb2.ListStoresRequest(), timeout=PATIENCE_S).stores
        shown = stores.GetStore(store_service_pb2.GetStoreRequest(store="odd", max_length=2), timeout=PATIENCE_S).store
        samples = stores.ListSamples(
            store_service_pb2.ListSamplesRequest(store="odd", begin_row=0, end_row=10, max_length=2), timeout=PATIENCE_S
        ).samples
    assert [store.name for store in listed] == ["odd"]
    assert (shown.rows, shown.tokens, shown.max_token, shown.token_bytes) == (4, 8, 70000, 4)
    assert shown.format == kind
    assert [shard.rows for shard in shown.shards] == [2, 2]
    assert (shown.kept_rows, sum(shown.dropped.values())) == (1, 3)
    assert [list(sample.input_ids) for sample in samples] == [[1, 2], [], [9, 9], [5, 6]]
    assert [sample.kept for sample in samples] == [True, False, False, False]
    assert all(bool(sample.reason) != sample.kept for sample in samples)


def test_rows_that_are_never_served_are_counted_by_reason(tmp_path: Path) -> None:
    rows = [([1, 2, 3], [0, 1, 1]), ([], []), ([9, 9], [0, 0]), ([5, 6], [1, 0])]
    write_store(tmp_path / "odd", rows=rows)
    with running_server({"odd": tmp_path / "odd"}, metrics_listen="127.0.0.1:0") as server:
        assert metric(server, "dataserver_store_dropped_rows", store="odd", reason="empty") == 1
        assert metric(server, "dataserver_store_dropped_rows", store="odd", reason="no_target") == 2


def test_a_store_that_changed_under_a_run_is_named(tmp_path: Path) -> None:
    """The ledger outlives the store: a server comes up with another store under the same name."""
    ledger_url = f"sqlite:///{tmp_path}/ledger.db"
    first, second = write_store(tmp_path / "a", lengths=[5, 6, 7]), write_store(tmp_path / "b", lengths=[5, 6, 8])
    with running_server({"chat": first}, ledger_url=ledger_url) as server, job_on(server) as job:
        job.create()
    with (
        running_server({"chat": second}, ledger_url=ledger_url) as server,
        job_on(server) as job,
        pytest.raises(grpc.RpcError) as raised,
    ):
        job.begin()
    assert raised.value.code() == grpc.StatusCode.FAILED_PRECONDITION
    assert "what differs: stores" in raised.value.details()
