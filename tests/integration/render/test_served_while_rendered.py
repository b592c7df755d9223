"""A server answers while it renders: for its other stores at once, for a text source when that is whole."""

import queue
import threading
import urllib.request
from contextlib import ExitStack

import grpc
import pytest
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from grpc_health.v1 import health_pb2, health_pb2_grpc
from textlab import LIMIT_S, ROWS, eventually, held_up, samples_of, spec_of, text_source, write_lines

from dataserver.client import DataClient
from dataserver.errors import StoreRefusedError, UnavailableError
from dataserver.testing import running_server, write_store
from dataserver.v1 import store_service_pb2
from dataserver.v1.store_service_pb2_grpc import StoreServiceStub
from dataserver.wire.store_info import RenderingInfo

SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
FAR = RenderingInfo(stage="rendering", done=3, total=10, rows=1200, rows_per_s=40.0, tokens_per_s=900.0, left_s=70.0)
IN_WORDS = "store 'chat' is being rendered: 30%, 1,200 rows, 40 rows/s, 900 tokens/s, about 70 s left"


@pytest.fixture
def rendering(chatml, tmp_path):
    """A server of a plain store and of conversations whose rendering ends when `end` is called."""
    source = write_lines(tmp_path / "chats.jsonl", ROWS)
    stores = {"small": write_store(tmp_path / "small", lengths=[9] * 24), "chat": text_source(source, chatml)}
    with ExitStack() as stack, ExitStack() as until_ended:
        progress = until_ended.enter_context(held_up(source, chatml, tmp_path / "index"))
        server = stack.enter_context(running_server(stores, index_dir=tmp_path / "index", metrics_listen="127.0.0.1:0"))
        client = stack.enter_context(DataClient(server.endpoint, patience_s=LIMIT_S))
        progress.write(FAR)
        eventually(lambda: client.get_store("chat").rendering.rows == FAR.rows)
        yield server, client, until_ended.close


def health(endpoint: str, name: str) -> int:
    with grpc.insecure_channel(endpoint) as channel:
        return health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=name)).status


def metrics_of(server) -> str:
    with urllib.request.urlopen(f"http://{server.metrics_endpoint}/metrics", timeout=LIMIT_S) as answer:
        return answer.read().decode()


def test_other_stores_are_served_and_each_has_a_health_of_its_own(rendering):
    server, client, end = rendering
    client.create_run("run", spec_of("small"))
    assert samples_of(client, "run") == 24
    assert [health(server.endpoint, name) for name in ("", "store/small", "store/chat")] == [
        SERVING, SERVING, NOT_SERVING,
    ]  # fmt: skip
    end()
    client.await_store("chat")
    eventually(lambda: health(server.endpoint, "store/chat") == SERVING)


def test_how_far_it_is_is_told_by_the_store_service_and_by_metrics(rendering):
    server, client, end = rendering
    chat, small = client.list_stores()
    assert (chat.name, chat.state, chat.rendering) == ("chat", "rendering", FAR)
    assert (small.name, small.state, small.rendering, small.rows) == ("small", "ready", None, 24)
    told = metrics_of(server)
    assert 'dataserver_store_rendered_rows{store="chat"} 1200.0' in told
    assert 'dataserver_store_render_left_seconds{store="chat"} 70.0' in told
    assert 'dataserver_store_ready{store="chat"} 0.0' in told
    assert 'dataserver_store_ready{store="small"} 1.0' in told
    end()
    client.await_store("chat")
    assert (client.get_store("chat").state, client.get_store("chat").rows) == ("ready", len(ROWS))
    eventually(lambda: 'dataserver_store_ready{store="chat"} 1.0' in metrics_of(server))


def test_a_run_over_it_waits_says_for_what_and_is_trained_when_it_is_ready(rendering, caplog):
    _, client, end = rendering
    created: queue.SimpleQueue = queue.SimpleQueue()
    waiting = threading.Thread(target=lambda: created.put(client.create_run("run", spec_of("chat"))))
    waiting.start()
    eventually(lambda: "RunService/CreateRun waits" in caplog.text)
    assert IN_WORDS in caplog.text
    assert created.empty()
    end()
    assert created.get(timeout=LIMIT_S).name == "run"
    waiting.join()
    assert samples_of(client, "run") == len(ROWS)


def test_clients_of_others_are_told_when_to_ask_again(rendering):
    server, _, _ = rendering
    with grpc.insecure_channel(server.endpoint) as channel, pytest.raises(grpc.RpcError) as caught:
        StoreServiceStub(channel).ListSamples(store_service_pb2.ListSamplesRequest(store="chat", end_row=1))
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert caught.value.details().startswith(IN_WORDS)
    retry = RetryInfo()
    status = Status.FromString(dict(caught.value.trailing_metadata())["grpc-status-details-bin"])
    assert any(detail.Unpack(retry) for detail in status.details)
    assert retry.retry_delay.seconds > 0


def test_who_has_no_patience_hears_that_nothing_moved(rendering):
    server, _, _ = rendering
    with (
        DataClient(server.endpoint, patience_s=3.0) as hasty,
        pytest.raises(UnavailableError, match=r"nothing moved for .* store 'chat' is being rendered: 30%"),
    ):
        hasty.create_run("run", spec_of("chat"))


def test_who_waits_says_who_told_it_what_for(rendering, caplog):
    server, _, _ = rendering
    with DataClient(f"127.0.0.1:1,{server.endpoint}", patience_s=0.5) as client:
        with pytest.raises(UnavailableError, match=r"waited since"):
            client.await_store("chat")
        assert "127.0.0.1:1 is away" in caplog.text
        assert "127.0.0.1:1 says" not in caplog.text


def test_conversations_that_cannot_be_rendered_fail_their_store_and_no_other(chatml, tmp_path):
    source = write_lines(tmp_path / "chats.jsonl", [*ROWS, {"messages": []}])
    stores = {
        "bad": text_source(source, chatml),
        "none": text_source(tmp_path / "nothing", chatml),
        "good": text_source(write_lines(tmp_path / "good.jsonl", ROWS), chatml),
    }
    with running_server(stores) as server, DataClient(server.endpoint) as client:
        for name in stores:
            client.await_store(name)
        bad, good, none = client.list_stores()
        assert [store.state for store in (bad, good, none)] == ["failed", "ready", "failed"]
        assert "File 'chats.jsonl', row 40: its list of messages is empty" in bad.fault
        with pytest.raises(StoreRefusedError, match=r"'bad' was not rendered: .* row 40: .* start the server again"):
            client.create_run("run", spec_of("bad"))
        client.create_run("run", spec_of("good"))
        assert health(server.endpoint, "store/bad") == NOT_SERVING
        assert health(server.endpoint, "") == SERVING
