"""`dataserver sync` against a real server."""

import json

import pytest

from dataserver.cli.main import main
from dataserver.client import DataClient
from dataserver.run_spec import BatchSpec, OrderSpec, RunSpec, Source
from dataserver.testing import running_server, write_store
from dataserver.weight_sync import PolicyVersion, SyncOutcome, WeightSync


@pytest.fixture
def server(tmp_path):
    store = write_store(tmp_path / "chat", lengths=[5, 9, 4, 30] * 4)
    with running_server({"chat": store}, max_steps_ahead=0) as running:
        yield running


@pytest.fixture
def client(server):
    """A client of a server that has a run of two steps, the first one sealed and landed."""
    order = OrderSpec(sources=(Source(store="chat"),), max_length=32)
    batch = BatchSpec(step_samples=4, micro_batch_tokens=64, max_steps=2)
    with DataClient(server.endpoint) as client:
        client.create_run("chat", RunSpec(order=order, batch=batch))
        attempt = client.begin_attempt("chat", resume=False, world_size=1, dp_world_size=1, holder="launch")
        client.request_sync("chat", 0)
        with client.stream("chat", attempt, world_rank=0, dp_rank=0, next_step=1, takes_offers=True) as stream:
            stream.opening_offer()
            list(next(stream))
        landed = WeightSync(
            sync_id="a" * 32,
            version=PolicyVersion(attempt=1, number=0),
            outcome=SyncOutcome.LANDED,
            seconds=1.25,
            stall_seconds=0.5,
            engines=("left", "right"),
        )
        client.report_sync("chat", landed)
        yield client


@pytest.fixture
def dataserver(server, capsys):
    """Run a command; returns exit status, stdout and stderr."""

    def run(*arguments: str) -> tuple[int, str, str]:
        status = main([*arguments, "--endpoint", server.endpoint])
        out, err = capsys.readouterr()
        return status, out, err

    return run


def test_what_is_wanted_and_what_landed_is_shown(dataserver, client):
    client.request_sync("chat", None)
    client.hold_sync("chat", "eval-7", 60.0)
    client.lease_orchestrator("chat", "orchestrator-1", "node2:7000", 60.0)
    status, out, _ = dataserver("sync", "show", "chat")
    lines = {" ".join(line.split()[:1]): " ".join(line.split()[1:]) for line in out.splitlines() if line}
    assert status == 0
    assert lines["run"] == "chat (attempt 1)"
    assert lines["requested"] == "last"
    assert "eval-7 until" in lines["held"]
    assert lines["landed"] == "version 1.0"
    assert "orchestrator-1 at node2:7000, epoch 1" in lines["orchestrator"]
    assert "1.0 landed 1.25 0.50 left, right" in " ".join(out.split())
    status, out, _ = dataserver("sync", "show", "chat", "--json")
    shown = json.loads(out)
    assert (shown["landed"], shown["last_requested"]) == ({"attempt": 1, "number": 0}, True)
    assert shown["syncs"][0]["engines"] == ["left", "right"]


def test_a_person_asks_for_weights_and_hears_what_becomes_of_it(dataserver, client):
    assert dataserver("sync", "request", "chat", "--last")[:2] == (0, "run chat: the last version is asked for\n")
    assert dataserver("sync", "request", "chat", "--version", "0")[:2] == (
        0,
        "run chat: version 0 has landed: engines have served it\n",
    )
    status, out, _ = dataserver("sync", "request", "chat", "--version", "2", "--at-or-after", "--json")
    assert (status, json.loads(out)["outcome"] in {"accepted", "landed"}) == (0, True)
    status, _, err = dataserver("sync", "request", "chat", "--version", "3")
    assert (status, "ends with version 2" in err) == (1, True)


def test_a_state_is_watched_as_it_changes_and_renewals_are_no_change(client):
    states = client.watch_sync_state("chat")
    assert next(states).holds == ()
    client.hold_sync("chat", "eval", 60.0)
    assert [hold.hold_id for hold in next(states).holds] == ["eval"]
    client.hold_sync("chat", "eval", 90.0)
    client.request_sync("chat", None)
    assert next(states).last_requested is True, "the renewal was not told by itself"
    states.close()
