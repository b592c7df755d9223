"""Rule 15 through client and server: weights are offered before the first step, and after the last while wanted."""

from contextlib import contextmanager
from uuid import uuid4

import pytest

from dataserver.client import DataClient
from dataserver.errors import AttemptMismatchError, PreconditionError, UnavailableError
from dataserver.ledger import open_ledger
from dataserver.run_spec import BatchSpec, OrderSpec, RunSpec, Source
from dataserver.testing import running_server
from dataserver.weight_sync import OrchestratorAddress, PolicyVersion, SyncOutcome, WeightSync

SPEC = RunSpec(
    order=OrderSpec(sources=(Source(store="chat"),), max_length=64),
    batch=BatchSpec(step_samples=4, micro_batch_tokens=128, max_steps=2),
)


class Job:
    """A server, its ledger, and a job of so many ranks."""

    def __init__(self, server, ledger, client: DataClient, ranks: int) -> None:
        self.server, self.ledger, self.client = server, ledger, client
        client.create_run("run", SPEC)
        self.attempt = client.begin_attempt(
            "run", resume=False, world_size=ranks, dp_world_size=ranks, holder=str(uuid4())
        )
        self.ranks = ranks
        self.streams = []

    def stream(self, rank: int, **options: object):
        return self.client.stream("run", self.attempt, world_rank=rank, dp_rank=rank, next_step=1, **options)

    def opening_offers(self) -> list:
        """Open all streams: from here on steps are sealed."""
        self.streams = [self.stream(rank, takes_offers=True) for rank in range(self.ranks)]
        return [stream.opening_offer() for stream in self.streams]

    def take_all_steps(self) -> list[bool]:
        flags = []
        for steps in zip(*self.streams, strict=True):
            for stream, step in zip(self.streams, steps, strict=True):
                list(step)
                stream.ack(step)
            flags.append({(step.sync_weights, step.orchestrator) for step in steps})
        return flags

    def report(self, number: int, outcome: SyncOutcome) -> None:
        version = PolicyVersion(attempt=self.attempt.number, number=number)
        self.client.report_sync("run", WeightSync(sync_id=uuid4().hex, version=version, outcome=outcome))


@pytest.fixture
def job(tmp_path, store):
    """Start a job; the orchestrator's lease, and requests, are made through the ledger that the server has."""

    @contextmanager
    def start(ranks: int = 1, **config: object):
        url = f"sqlite:///{tmp_path}/ledger.db"
        with running_server({"chat": store}, ledger_url=url, **config) as server:
            ledger = open_ledger(url, lease_s=30.0)
            with DataClient(server.endpoint, patience_s=60.0) as client:
                yield Job(server, ledger, client, ranks)
            ledger.close()

    return start


def test_the_opening_offer_and_the_stamps_name_the_orchestrator_and_are_the_same_for_all_ranks(job):
    with job(ranks=2) as job:
        job.client.lease_orchestrator("run", "o", "host:9", 60.0)
        job.client.request_sync("run", 1)
        first, second = job.opening_offers()
        assert first == second
        assert (first.number, first.sync_weights, first.version) == (0, False, PolicyVersion(attempt=1, number=0))
        here = OrchestratorAddress(epoch=1, address="host:9")
        assert job.take_all_steps() == [{(True, here)}, {(False, None)}]
        assert [list(stream.offers()) for stream in job.streams] == [[], []]


def test_a_wanted_last_version_is_offered_again_until_it_has_landed(job, monkeypatch):
    monkeypatch.setattr("dataserver.ledger.rules.offers.OFFER_PAUSE_S", 0.0)
    with job(ranks=2) as job:
        job.client.lease_orchestrator("run", "o", "host:9", 60.0)
        job.client.request_sync("run", None)
        job.opening_offers()
        assert job.take_all_steps()[-1] == {(True, OrchestratorAddress(epoch=1, address="host:9"))}
        job.report(2, SyncOutcome.SKIPPED)
        offers = [stream.offers() for stream in job.streams]
        seen = []
        for outcome in (SyncOutcome.FAILED, SyncOutcome.LANDED):
            pair = [next(each) for each in offers]
            assert pair[0] == pair[1]
            seen.append(pair[0])
            for stream, offer in zip(job.streams, pair, strict=True):
                stream.ack_offer(offer)
            job.report(2, outcome)
        assert [(offer.number, offer.sync_weights) for offer in seen] == [(1, True), (2, True)]
        assert [next(each, None) for each in offers] == [None, None]
        assert job.client.get_run("run").ended


def test_a_rank_that_meets_a_restarted_server_goes_on_with_the_offer_that_it_has_not_acknowledged(job, monkeypatch):
    monkeypatch.setattr("dataserver.ledger.rules.offers.OFFER_PAUSE_S", 0.0)
    with job() as job:
        job.client.lease_orchestrator("run", "o", "host:9", 60.0)
        job.client.request_sync("run", None)
        job.opening_offers()
        stream = job.streams[0]
        job.take_all_steps()
        job.report(2, SyncOutcome.FAILED)
        offers = stream.offers()
        first = next(offers)
        job.server.restart()
        stream.ack_offer(first)
        job.report(2, SyncOutcome.FAILED)
        second = next(offers)
        stream.ack_offer(second)
        job.server.restart()
        job.report(2, SyncOutcome.LANDED)
        assert next(offers, None) is None
        assert [first.number, second.number] == [1, 2]


def test_a_server_that_stays_away_after_the_last_step_is_told_from_the_end_of_the_run(job):
    with job() as job, DataClient(job.server.endpoint, patience_s=2.0) as job.client:
        job.client.request_sync("run", None)
        job.opening_offers()
        job.take_all_steps()
        job.server.stop()
        with pytest.raises(UnavailableError):
            next(job.streams[0].offers())


def test_the_end_is_put_off_no_longer_than_the_shutdown_deadline(job):
    with job(shutdown_hold_s=1.5) as job:
        job.client.request_sync("run", None)
        job.opening_offers()
        job.take_all_steps()
        assert list(job.streams[0].offers()) == [], "nobody takes the weights, so they are not offered"
        events = [event.kind for event in job.client.list_run_events("run")]
        assert events[-2:] == ["sync_expired", "ended"]


def test_without_a_wish_the_run_ends_as_soon_as_all_ranks_did_the_last_step(job):
    with job(ranks=2) as job:
        job.opening_offers()
        job.take_all_steps()
        assert [list(stream.offers()) for stream in job.streams] == [[], []]
        assert job.client.get_run("run").ended


def test_a_hold_that_lives_at_the_end_gets_the_last_version_and_then_lets_the_run_end(job, monkeypatch):
    monkeypatch.setattr("dataserver.ledger.rules.offers.OFFER_PAUSE_S", 0.0)
    with job() as job:
        job.client.lease_orchestrator("run", "o", "host:9", 60.0)
        job.client.hold_sync("run", "eval", 60.0)
        assert job.opening_offers()[0].sync_weights
        assert [bool(next(iter(flags))[0]) for flags in job.take_all_steps()] == [True, True]
        job.report(2, SyncOutcome.SKIPPED)
        offers = job.streams[0].offers()
        job.streams[0].ack_offer(next(offers))
        job.report(2, SyncOutcome.LANDED)
        assert next(offers, None) is None


def test_ranks_that_disagree_about_offers_are_refused(job):
    with job(ranks=2) as job:
        job.opening_offers()
        job.streams[1].close()
        plain = job.stream(1)
        with pytest.raises(AttemptMismatchError, match="takes_offers"):
            next(plain)


def test_a_stream_is_used_in_the_order_in_which_offers_come(job):
    with job() as job:
        stream = job.stream(0, takes_offers=True)
        with pytest.raises(PreconditionError, match="opening_offer"):
            next(stream)
        with pytest.raises(PreconditionError, match="last step"):
            next(stream.offers())
        stream.opening_offer()
        with pytest.raises(PreconditionError, match="once"):
            stream.opening_offer()
