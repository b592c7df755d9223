"""What a server does where a text source cannot be rendered yet, or its process dies."""

import asyncio
from contextlib import ExitStack

import psutil
import pytest
from grpc_health.v1 import health_pb2
from grpc_health.v1._async import HealthServicer
from prometheus_client import CollectorRegistry
from textlab import LIMIT_S, ROWS, eventually, held_up, text_source, write_lines

from dataserver.client import DataClient
from dataserver.config import parse_config
from dataserver.errors import StoreNotReadyError
from dataserver.server.announcer import Announcer
from dataserver.server.text_sources import TextSources
from dataserver.streaming.catalog import StoreCatalog, open_catalog
from dataserver.streaming.metrics import Metrics
from dataserver.testing import running_server
from dataserver.wire.store_info import RenderingInfo


def kill_what_renders() -> bool:
    """Kill the processes that this one's servers render in; whether there were any."""
    found = [child for child in psutil.Process().children() if renders(child)]
    for child in found:
        child.kill()
    return bool(found)


def renders(child: psutil.Process) -> bool:
    """Children of other tests may be dead and not yet waited for, or gone meanwhile: they have no command."""
    try:
        return "dataserver.server.render_process" in child.cmdline()
    except psutil.NoSuchProcess:  # zombies too
        return False


@pytest.fixture
def chats(tmp_path):
    return write_lines(tmp_path / "chats.jsonl", ROWS)


@pytest.fixture
def held(chats, chatml, tmp_path):
    """A client of a server whose only store waits for another process, until `end` is called."""
    with ExitStack() as stack, ExitStack() as until_ended:
        until_ended.enter_context(held_up(chats, chatml, tmp_path / "index"))
        stores = {"chat": text_source(chats, chatml)}
        server = stack.enter_context(running_server(stores, index_dir=tmp_path / "index"))
        yield stack.enter_context(DataClient(server.endpoint, patience_s=LIMIT_S)), until_ended.close


def test_a_store_whose_process_died_is_rendered_all_the_same(held):
    client, end = held
    eventually(kill_what_renders)
    end()
    client.await_store("chat")
    assert client.get_store("chat").rows == len(ROWS)


def test_a_store_over_which_processes_die_again_and_again_fails(held):
    client, _ = held

    def failed() -> bool:
        kill_what_renders()
        return client.get_store("chat").state == "failed"

    eventually(failed)
    assert "status -9; the server's log says why. That was tried 3 times" in client.get_store("chat").fault


def test_a_storage_that_is_away_keeps_no_other_store_waiting(chats, chatml, tmp_path, monkeypatch):
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    away = {**text_source("s3://bucket/chats", chatml), "storage": {"region": "nowhere"}}  # without credentials
    with (
        running_server({"away": away, "chat": text_source(chats, chatml)}) as server,
        DataClient(server.endpoint, patience_s=LIMIT_S) as client,
    ):
        client.await_store("chat")
        assert [store.state for store in client.list_stores()] == ["rendering", "ready"]


def test_a_store_that_waits_its_turn_comes_nearer_with_the_one_before():
    catalog = StoreCatalog({}, ["first", "second"])
    told = []
    for done in (3, 3, 4):
        catalog.tell("first", RenderingInfo(stage="rendering", done=done, total=10, rows=7))
        with pytest.raises(StoreNotReadyError, match="'second' is to be rendered in its turn") as caught:
            catalog.get("second")
        told.append(caught.value.details)
    assert told[0] == told[1] != told[2], "whoever waits is patient with what moves"
    assert catalog.rendering("second").rows == 0, "its own are none"


def test_who_cannot_be_told_of_a_store_hinders_no_other(chats, chatml, tmp_path):
    stores = {name: text_source(chats, chatml) for name in ("a", "b")}
    config = parse_config({"stores": stores, "index_dir": str(tmp_path / "index")})
    catalog, health = open_catalog(config), HealthServicer()

    async def render() -> None:
        loop, tried = asyncio.get_running_loop(), asyncio.Queue()

        def print_it(name: str, _store: object) -> None:
            loop.call_soon_threadsafe(tried.put_nowait, name)
            raise BrokenPipeError("nobody reads what is printed")

        sources = TextSources(config, catalog, Announcer(Metrics(CollectorRegistry()), health, print_it))
        sources.start()
        async with asyncio.timeout(LIMIT_S):
            assert [await tried.get() for _ in stores] == ["a", "b"]
        await sources.close()
        for name in stores:
            answer = await health.Check(health_pb2.HealthCheckRequest(service=f"store/{name}"), None)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING

    asyncio.run(render())
    assert catalog.get("a").rows == catalog.get("b").rows == len(ROWS)
    catalog.close()
