"""The client covers the contract, and stays light."""

import pickle
import re
import subprocess
import sys

import grpc
import pytest

import dataserver.client
from dataserver.client import DataClient
from dataserver.cursor import Cursor
from dataserver.run_spec import BatchSpec, OrderSpec, RunSpec, Source
from dataserver.testing import attempt_info
from dataserver.v1 import (
    batch_service_pb2,
    cursor_service_pb2,
    run_service_pb2,
    store_service_pb2,
    weight_sync_service_pb2,
)
from dataserver.weight_sync import PolicyVersion, SyncOutcome, WeightSync

SERVICES = {
    name: service
    for module in (
        batch_service_pb2,
        cursor_service_pb2,
        run_service_pb2,
        store_service_pb2,
        weight_sync_service_pb2,
    )
    for name, service in module.DESCRIPTOR.services_by_name.items()
}
RPCS = sorted(f"{name}/{method.name}" for name, service in SERVICES.items() for method in service.methods)

SPEC = RunSpec(
    order=OrderSpec(sources=(Source(store="s"),), max_length=8), batch=BatchSpec(step_samples=1, micro_batch_tokens=8)
)
CURSOR = Cursor(order_fingerprint="f")
SYNC = WeightSync(sync_id="0" * 32, version=PolicyVersion(attempt=1, number=1), outcome=SyncOutcome.SKIPPED)
BEGIN = {"resume": False, "world_size": 1, "dp_world_size": 1, "holder": "h"}
CALLS = {
    "create_run": lambda client: client.create_run("r", SPEC),
    "amend_run": lambda client: client.amend_run("r", 2, SPEC.order),
    "begin_attempt": lambda client: client.begin_attempt("r", **BEGIN),
    "get_run": lambda client: client.get_run("r"),
    "list_runs": lambda client: client.list_runs(),
    "watch_run": lambda client: next(client.watch_run("r")),
    "delete_run": lambda client: client.delete_run("r"),
    "list_run_events": lambda client: client.list_run_events("r"),
    "get_cursor": lambda client: client.get_cursor("r"),
    "list_cursors": lambda client: client.list_cursors("r"),
    "commit_cursor": lambda client: client.commit_cursor("r", attempt_info(), CURSOR, "file:///c"),
    "rewind_run": lambda client: client.rewind_run("r", 0),
    "describe_step": lambda client: client.describe_step("r", 1),
    "list_stores": lambda client: client.list_stores(),
    "get_store": lambda client: client.get_store("s"),
    "list_samples": lambda client: client.list_samples("s", 0, 1),
    "request_sync": lambda client: client.request_sync("r", 1),
    "hold_sync": lambda client: client.hold_sync("r", "h", 1.0),
    "release_sync": lambda client: client.release_sync("r", "h"),
    "report_sync": lambda client: client.report_sync("r", SYNC),
    "sync_state": lambda client: client.sync_state("r"),
    "watch_sync_state": lambda client: next(client.watch_sync_state("r")),
    "lease_orchestrator": lambda client: client.lease_orchestrator("r", "h", "127.0.0.1:1", 1.0),
    "release_orchestrator": lambda client: client.release_orchestrator("r", "h"),
    "stream": lambda client: next(client.stream("r", attempt_info(), world_rank=0, dp_rank=0, next_step=1)),
}
# `eval_stream` is the other purpose of `stream`'s RPC.
NOT_RPCS = {"await_store", "close", "eval_stream"}


def method_of(rpc: str) -> str:
    name = rpc.partition("/")[2].replace("GetWeightSync", "Sync").replace("WeightSync", "Sync")
    return "stream" if name == "StreamMicroBatches" else re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


class Recorder(grpc.GenericRpcHandler):
    """Notes which RPCs are called, and knows none but `GetRun`, which beginning an attempt asks first."""

    def __init__(self) -> None:
        self.called: set[str] = set()

    def service(self, handler_call_details):
        rpc = handler_call_details.method.removeprefix("/dataserver.v1.")
        self.called.add(rpc)
        if rpc != "RunService/GetRun":
            return None
        answer = run_service_pb2.GetRunResponse().SerializeToString()
        return grpc.unary_unary_rpc_method_handler(lambda request, context: answer)


def test_every_rpc_has_a_method_and_every_method_an_rpc():
    public = {name for name in dir(DataClient) if not name.startswith("_")} - NOT_RPCS
    assert {method_of(rpc) for rpc in RPCS} == public == set(CALLS)


def test_every_method_calls_its_rpc(unary):
    recorder = Recorder()
    server = unary({}, recorder)
    for rpc in RPCS:
        recorder.called.clear()
        with DataClient(server.endpoint) as client, pytest.raises(Exception, match=r"UNIMPLEMENTED|run spec has no"):
            CALLS[method_of(rpc)](client)
        assert rpc in recorder.called


def test_lists_are_read_to_their_last_page(unary):
    pages = {"": ("a", "1"), "1": ("b", "2"), "2": ("c", "")}

    def list_stores(request):
        name, token = pages[request.page_token]
        return store_service_pb2.ListStoresResponse(stores=[store_service_pb2.Store(name=name)], next_page_token=token)

    server = unary({"StoreService/ListStores": (store_service_pb2.ListStoresRequest, list_stores)})
    with DataClient(server.endpoint) as client:
        assert [store.name for store in client.list_stores()] == ["a", "b", "c"]


def test_the_package_exports_what_it_says():
    assert sorted(dataserver.client.__all__) == [
        "AttemptInfo",
        "CommitInfo",
        "CursorInfo",
        "DEFAULT_CREDITS",
        "DataClient",
        "EvalStream",
        "MicroBatch",
        "NO_TARGET",
        "RunEventInfo",
        "RunInfo",
        "SampleInfo",
        "Step",
        "StepDescription",
        "StepStream",
        "StoreInfo",
    ]


def test_importing_the_client_loads_nothing_heavy():
    program = "import sys, dataserver.client; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    loaded = set(result.stdout.split())
    assert {"numpy", "grpc", "pydantic"} <= loaded
    assert not loaded & {"torch", "pyarrow", "sqlalchemy", "uvloop", "prometheus_client", "transformers", "rich"}


def test_a_client_cannot_be_pickled_into_another_process():
    with pytest.raises(TypeError):
        pickle.dumps(DataClient("localhost:1"))
