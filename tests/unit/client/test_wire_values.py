"""Values of the wire lose no field of their message, and read it as it is."""

from dataclasses import fields

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from dataserver.v1 import cursor_service_pb2, run_pb2, run_service_pb2, store_service_pb2
from dataserver.wire import runs, store_info, stores, totals

PAIRS = [
    (run_pb2.Run, runs.RunInfo),
    (run_pb2.Attempt, runs.AttemptInfo),
    (run_service_pb2.RunEvent, runs.RunEventInfo),
    (cursor_service_pb2.Commit, runs.CommitInfo),
    (cursor_service_pb2.GetCursorResponse, runs.CursorInfo),
    (cursor_service_pb2.RewindRunResponse, runs.RewindInfo),
    (cursor_service_pb2.MicroBatchPlan, runs.PlannedMicroBatch),
    (cursor_service_pb2.SamplePlan, runs.PlannedSample),
    (cursor_service_pb2.DescribeStepResponse, runs.StepDescription),
    (run_pb2.SealedTotals, totals.TotalsInfo),
    (run_pb2.StoreTokens, totals.StoreTokensInfo),
    (run_pb2.PackingFigures, totals.FiguresInfo),
    (store_service_pb2.Store, store_info.StoreInfo),
    (store_service_pb2.Column, store_info.ColumnInfo),
    (store_service_pb2.Shard, store_info.ShardInfo),
    (store_service_pb2.IgnoredPath, store_info.IgnoredPathInfo),
    (store_service_pb2.LengthBucket, store_info.LengthBucketInfo),
    (store_service_pb2.Link, store_info.LinkInfo),
    (store_service_pb2.Padding, store_info.PaddingInfo),
    (store_service_pb2.ReadAmplification, store_info.ReadAmplificationInfo),
    (store_service_pb2.Sample, store_info.SampleInfo),
]


@pytest.mark.parametrize(("message", "value"), PAIRS, ids=lambda kind: kind.__name__)
def test_a_value_has_the_fields_of_its_message(message, value):
    assert {field.name for field in fields(value)} == {field.name for field in message.DESCRIPTOR.fields}


def test_times_are_seconds_since_1970():
    message = run_service_pb2.RunEvent(time=Timestamp(seconds=1_700_000_000, nanos=250_000_000), kind="created")
    assert runs.event_from_proto(message).time == 1_700_000_000.25


def test_a_store_is_read_whole():
    message = store_service_pb2.Store(
        name="chat",
        rows=7,
        token_bytes=2,
        columns=[store_service_pb2.Column(name="input_ids", type="list<int32>")],
        shards=[store_service_pb2.Shard(path="a.arrow", size=9, rows=7, digest="00")],
        ignored=[store_service_pb2.IgnoredPath(path="README", reason="no data")],
        dropped={"no_target": 2},
        length_histogram=[store_service_pb2.LengthBucket(begin=4, end=8, rows=7)],
        links=[store_service_pb2.Link(path="a.arrow", target="/elsewhere/a.arrow")],
        padding=[store_service_pb2.Padding(micro_batch_tokens=64, rows=7, unpacked=0.5, packed=0.25)],
        read_amplification=store_service_pb2.ReadAmplification(
            blocks=9, decoded_bytes=100, cache_bytes=50, rows_per_row=2.5
        ),
    )
    store = stores.store_from_proto(message)
    assert (store.name, store.rows, store.token_bytes, store.dropped) == ("chat", 7, 2, {"no_target": 2})
    assert store.columns == (store_info.ColumnInfo(name="input_ids", type="list<int32>"),)
    assert store.shards == (store_info.ShardInfo(path="a.arrow", size=9, rows=7, digest="00"),)
    assert store.ignored == (store_info.IgnoredPathInfo(path="README", reason="no data"),)
    assert store.length_histogram == (store_info.LengthBucketInfo(begin=4, end=8, rows=7),)
    assert store.links == (store_info.LinkInfo(path="a.arrow", target="/elsewhere/a.arrow"),)
    assert store.padding == (store_info.PaddingInfo(micro_batch_tokens=64, rows=7, unpacked=0.5, packed=0.25),)
    assert store.read_amplification == store_info.ReadAmplificationInfo(
        blocks=9, decoded_bytes=100, cache_bytes=50, rows_per_row=2.5
    )
    assert stores.store_to_proto(store) == message


def test_a_store_without_read_amplification_has_none():
    assert stores.store_from_proto(store_service_pb2.Store(name="chat")).read_amplification is None


def test_a_plan_keeps_rounds_ranks_and_samples_in_order():
    message = cursor_service_pb2.DescribeStepResponse(step=3)
    message.begin.order_fingerprint = message.end.order_fingerprint = "f"
    for round_index, dp_rank in ((0, 0), (0, 1), (1, 0)):
        planned = message.micro_batches.add(round=round_index, dp_rank=dp_rank)
        planned.samples.add(store="chat", row=10 * round_index + dp_rank, length=5)
    message.micro_batches.add(round=1, dp_rank=1)
    plan = runs.step_from_proto(message)
    assert [(m.round, m.dp_rank, [s.row for s in m.samples]) for m in plan.micro_batches] == [
        (0, 0, [0]),
        (0, 1, [1]),
        (1, 0, [10]),
        (1, 1, []),
    ]
