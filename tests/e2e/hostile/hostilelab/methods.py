"""All methods of the contract, by reflection, each with valid requests."""

from dataclasses import dataclass

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message

from dataserver.v1 import (
    batch_service_pb2,
    cursor_pb2,
    cursor_service_pb2,
    policy_version_pb2,
    run_pb2,
    run_service_pb2,
    run_spec_pb2,
    store_service_pb2,
    weight_sync_pb2,
    weight_sync_service_pb2,
)

FILES = (batch_service_pb2, cursor_service_pb2, run_service_pb2, store_service_pb2, weight_sync_service_pb2)

MINUTE = Duration(seconds=60)


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """One RPC: its path, the name of its request type, and which sides stream."""

    path: str
    request: str
    client_streams: bool
    server_streams: bool


def all_methods() -> list[Method]:
    """Every RPC of every service of `dataserver.v1`."""
    return [
        Method(
            path=f"/{service.full_name}/{method.name}",
            request=method.input_type.name,
            client_streams=method.client_streaming,
            server_streams=method.server_streaming,
        )
        for file in FILES
        for service in file.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    ]


def order_spec() -> run_spec_pb2.OrderSpec:
    return run_spec_pb2.OrderSpec(
        sources=[run_spec_pb2.Source(store="rows")],
        seed=5,
        shuffle=run_spec_pb2.SHUFFLE_FULL,
        max_length=16,
        long_rows=run_spec_pb2.LONG_ROWS_TRUNCATE,
    )


def batch_spec(**fields: int) -> run_spec_pb2.BatchSpec:
    spec = run_spec_pb2.BatchSpec(
        step_samples=10,
        micro_batch_tokens=32,
        policy=run_spec_pb2.PACKING_POLICY_BALANCED,
        alignment=1,
        lookahead_steps=1,
        max_epochs=1,
        cost_linear=1,
    )
    for name, value in fields.items():
        setattr(spec, name, value)
    return spec


def run_spec() -> run_spec_pb2.RunSpec:
    return run_spec_pb2.RunSpec(order=order_spec(), batch=batch_spec())


def begin(run: str, **fields: object) -> run_service_pb2.BeginAttemptRequest:
    """A fresh start of one rank that takes over whatever lives."""
    defaults = {
        "mode": run_service_pb2.BEGIN_MODE_START,
        "world_size": 1,
        "dp_world_size": 1,
        "holder": "hostile",
        "take_over": True,
    }
    return run_service_pb2.BeginAttemptRequest(run=run, **defaults | fields)


def open_of(run: str, begun: run_pb2.Attempt, **fields: int) -> batch_service_pb2.StreamMicroBatchesRequest:
    defaults = {"attempt": begun.number, "world_rank": 0, "dp_rank": 0, "next_step": 1, "credits": 4}
    return batch_service_pb2.StreamMicroBatchesRequest(
        open=batch_service_pb2.Open(
            purpose=batch_service_pb2.PURPOSE_TRAIN, run=run, attempt_id=begun.attempt_id, **defaults | fields
        )
    )


def eval_open() -> batch_service_pb2.StreamMicroBatchesRequest:
    """Reads the store of the tests as one of two ranks."""
    spec = run_spec_pb2.EvalSpec(
        store="rows", max_length=16, long_rows=run_spec_pb2.LONG_ROWS_TRUNCATE, micro_batch_tokens=32, alignment=1
    )
    return batch_service_pb2.StreamMicroBatchesRequest(
        open=batch_service_pb2.Open(
            purpose=batch_service_pb2.PURPOSE_EVAL, eval=spec, dp_rank=1, dp_world_size=2, credits=4
        )
    )


def ack(step: int) -> batch_service_pb2.StreamMicroBatchesRequest:
    return batch_service_pb2.StreamMicroBatchesRequest(ack=batch_service_pb2.Ack(step=step))


def credit(micro_batches: int) -> batch_service_pb2.StreamMicroBatchesRequest:
    return batch_service_pb2.StreamMicroBatchesRequest(credit=batch_service_pb2.Credit(micro_batches=micro_batches))


def valid_requests(run: str, attempt: run_pb2.Attempt, fingerprint: str) -> dict[str, list[Message]]:
    """By request type, requests that the server takes, for a run of that name with `attempt` under way."""
    cursor = cursor_pb2.Cursor(order_fingerprint=fingerprint)
    deal = cursor_pb2.Deal(
        dp_world_size=1, micro_batch_tokens=32, alignment=1, cost_linear=1, policy="balanced", planner_version=1
    )
    inside = cursor_pb2.Cursor(
        order_fingerprint=fingerprint, step=1,
        window=cursor_pb2.Window(steps=2, steps_done=1, samples=20, deal=deal),
    )  # fmt: skip
    resume = {"mode": run_service_pb2.BEGIN_MODE_RESUME, "batch": batch_spec(max_steps=3)}
    return sync_requests(run, attempt) | {
        "StreamMicroBatchesRequest": [open_of(run, attempt), ack(1), credit(2)],
        "GetCursorRequest": [cursor_service_pb2.GetCursorRequest(run=run, version=0)],
        "ListCursorsRequest": [cursor_service_pb2.ListCursorsRequest(run=run, page_size=5)],
        "CommitCursorRequest": [
            cursor_service_pb2.CommitCursorRequest(
                run=run,
                attempt=attempt.number,
                attempt_id=attempt.attempt_id,
                cursor=cursor,
                checkpoint_uri="file:///c",
            )
        ],
        "RewindRunRequest": [cursor_service_pb2.RewindRunRequest(run=run, version=0)],
        "DescribeStepRequest": [cursor_service_pb2.DescribeStepRequest(run=run, step=1, dp_world_size=2, dp_rank=1)],
        "CreateRunRequest": [run_service_pb2.CreateRunRequest(name=run, spec=run_spec())],
        "AmendRunRequest": [run_service_pb2.AmendRunRequest(run=run, first_step=1000, order=order_spec())],
        "BeginAttemptRequest": [
            begin(run),
            begin(run, cursor=cursor, version=0, **resume),
            begin(run, cursor=inside, version=1, **resume),
        ],
        "GetRunRequest": [run_service_pb2.GetRunRequest(run=run)],
        "ListRunsRequest": [run_service_pb2.ListRunsRequest(page_size=2)],
        "WatchRunRequest": [run_service_pb2.WatchRunRequest(run=run)],
        "DeleteRunRequest": [run_service_pb2.DeleteRunRequest(run=run)],
        "ListRunEventsRequest": [run_service_pb2.ListRunEventsRequest(run=run, page_size=5)],
        "ListStoresRequest": [store_service_pb2.ListStoresRequest(page_size=5)],
        "GetStoreRequest": [store_service_pb2.GetStoreRequest(store="rows", max_length=16)],
        "ListSamplesRequest": [
            store_service_pb2.ListSamplesRequest(store="rows", begin_row=0, end_row=5, max_length=16)
        ],
    }


def report(run: str, attempt: int, **fields: object) -> weight_sync_service_pb2.ReportWeightSyncRequest:
    """A sync of the start weights that landed."""
    defaults = {
        "sync_id": "0123456789abcdef" * 2,
        "version": policy_version_pb2.PolicyVersion(attempt=attempt, number=0),
        "outcome": weight_sync_pb2.SYNC_OUTCOME_LANDED,
        "seconds": 1.5,
        "stall_seconds": 0.5,
        "engines": ["a", "b"],
        "detail": "well",
    }
    return weight_sync_service_pb2.ReportWeightSyncRequest(
        run=run, sync=weight_sync_pb2.WeightSync(**defaults | fields)
    )


def sync_requests(run: str, attempt: run_pb2.Attempt) -> dict[str, list[Message]]:
    """Those of `WeightSyncService`."""
    pb = weight_sync_service_pb2
    return {
        "RequestWeightSyncRequest": [
            pb.RequestWeightSyncRequest(run=run, version=3, at_or_after=True),
            pb.RequestWeightSyncRequest(run=run, last=True),
        ],
        "HoldWeightSyncRequest": [pb.HoldWeightSyncRequest(run=run, hold_id="eval", ttl=MINUTE)],
        "ReleaseWeightSyncRequest": [pb.ReleaseWeightSyncRequest(run=run, hold_id="eval")],
        "ReportWeightSyncRequest": [report(run, attempt.number)],
        "GetWeightSyncStateRequest": [pb.GetWeightSyncStateRequest(run=run)],
        "WatchWeightSyncStateRequest": [pb.WatchWeightSyncStateRequest(run=run)],
        "LeaseOrchestratorRequest": [pb.LeaseOrchestratorRequest(run=run, holder="one", address="host:7", ttl=MINUTE)],
        "ReleaseOrchestratorRequest": [pb.ReleaseOrchestratorRequest(run=run, holder="one")],
    }
