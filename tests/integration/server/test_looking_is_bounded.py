"""What a person looks up costs a server a bounded share, however much there is to look at."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dataserver.client import DataClient
from dataserver.errors import InvalidRequestError, WaitExpiredError
from dataserver.run_spec import BatchSpec, OrderSpec, RunSpec, Source
from dataserver.services import cursor_service, describe
from dataserver.testing import running_server

SPEC = RunSpec(
    order=OrderSpec(sources=(Source(store="chat"),), max_length=64),
    batch=BatchSpec(step_samples=4, micro_batch_tokens=64),
)


@pytest.fixture
def client(chat_store: Path) -> Iterator[DataClient]:
    with running_server({"chat": chat_store}) as server, DataClient(server.endpoint, patience_s=20.0) as client:
        client.create_run("run", SPEC)
        yield client


def test_a_step_that_takes_long_to_plan_is_given_up_with_a_reason(
    client: DataClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as soon:
        soon.setattr(describe, "LONGEST_S", 0.05)
        with pytest.raises(WaitExpiredError, match=r"step 10000 was not planned within 0.05 s.*Ask for one nearer"):
            client.describe_step("run", 10_000)
    assert client.describe_step("run", 2).sample_count == 4


def test_a_step_too_large_for_one_answer_is_shown_by_rank(client: DataClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cursor_service, "MOST_SAMPLES", 3)
    with pytest.raises(
        InvalidRequestError, match="step 1 has 4 samples on 2 ranks, and one answer holds 3: give a dp_rank"
    ):
        client.describe_step("run", 1, dp_world_size=2)
    shown = [client.describe_step("run", 1, dp_world_size=2, dp_rank=rank) for rank in range(2)]
    assert sum(len(batch.samples) for step in shown for batch in step.micro_batches) == 4


def test_runs_are_listed_by_a_server_that_has_none_of_their_stores(chat_store: Path, tmp_path: Path) -> None:
    ledger = f"sqlite:///{tmp_path}/ledger.db"
    with running_server({"chat": chat_store}, ledger_url=ledger) as server, DataClient(server.endpoint) as client:
        created = client.create_run("run", SPEC)
        amended = client.amend_run("run", 3, SPEC.order.model_copy(update={"max_length": 16}))
    with running_server({}, ledger_url=ledger) as server, DataClient(server.endpoint) as client:
        [listed] = client.list_runs()
        shown = client.get_run("run")
    assert 0 < listed.epoch_samples == shown.epoch_samples == created.epoch_samples == amended.epoch_samples
    assert listed.stages == shown.stages == amended.stages
