"""Rules 15 and 16: offers outside of steps, the end that waits for them, and whom they name."""

import pytest

from dataserver.errors import AttemptMismatchError, InvalidRequestError, OrchestratorAliveError, StaleAttemptError
from dataserver.ledger.steps import Seal
from dataserver.weight_sync import Offer, OrchestratorAddress, PolicyVersion, ShutdownHold, SyncOutcome, WeightSync

HOLD_S = 100.0
HERE = OrchestratorAddress(epoch=1, address="host:9")


class Shutdown:
    """A run of two ranks that take offers, behind its last step, 2."""

    def __init__(self, story, clock) -> None:
        self.story, self.clock, self.syncs = story, clock, 0
        self.attempt = story.begin().number
        self.lead()
        for rank in range(2):
            story.open(self.attempt, rank, takes_offers=True)

    def lead(self) -> None:
        self.story.ledger.lease_orchestrator("run", "one", "host:9", 3600.0)

    def do_steps(self) -> Seal:
        """Seal and acknowledge both; the last one's seal."""
        self.story.seal(self.attempt, 1)
        last = self.story.seal(self.attempt, 2, last=True)
        self.story.ack(self.attempt, {0: 2, 1: 2})
        return last

    def conclude(self, after: int = 0):
        end = self.story.propose(3, end_of_run=True)
        return self.story.ledger.conclude(self.story.uid, self.story.key(self.attempt), end, after=after, hold_s=HOLD_S)

    def report(self, outcome: SyncOutcome, number: int = 2, **fields: object) -> WeightSync:
        self.syncs += 1
        version = PolicyVersion(attempt=self.attempt, number=number)
        sync = WeightSync(**{"sync_id": f"{self.syncs:032x}", "version": version, "outcome": outcome} | fields)
        return self.story.ledger.report_sync("run", sync)

    def ack(self, offer: int, *ranks: int) -> None:
        acks = dict.fromkeys(ranks or (0, 1), offer)
        self.story.ledger.ack_offers(self.story.uid, self.story.key(self.attempt), acks)


@pytest.fixture
def shutdown(story, clock) -> Shutdown:
    return Shutdown(story, clock)


def test_the_opening_offer_is_sealed_by_the_first_open_that_takes_offers(story, clock):
    story.begin()
    assert story.ledger.get_offer(story.uid, story.key(1), 0) is None
    story.ledger.lease_orchestrator("run", "one", "host:9", 60.0)
    story.ledger.hold_sync("run", "eval", 60.0)
    story.open(1, 0, takes_offers=True)
    story.ledger.release_sync("run", "eval")
    clock.advance(61)
    story.open(1, 1, takes_offers=True)
    expected = Offer(number=0, version=PolicyVersion(attempt=1, number=0), sync_weights=True, orchestrator=HERE)
    assert story.ledger.get_offer(story.uid, story.key(1), 0) == expected


def test_all_ranks_of_an_attempt_take_offers_or_none_does(story):
    story.begin()
    story.open(1, 0, takes_offers=True)
    with pytest.raises(AttemptMismatchError, match="takes_offers = false"):
        story.open(1, 1)
    story.open(1, 1, takes_offers=True)


def test_a_step_names_the_orchestrator_that_lives_when_it_is_sealed(story, clock):
    story.begin()
    story.ledger.hold_sync("run", "eval", 600.0)
    seals = [story.seal(1, 1)]
    story.ledger.lease_orchestrator("run", "one", "host:9", 30.0)
    seals.append(story.seal(1, 2))
    clock.advance(31)
    seals.append(story.seal(1, 3))
    story.ledger.lease_orchestrator("run", "two", "host:8", 30.0)
    story.ledger.release_sync("run", "eval")
    seals.append(story.seal(1, 4))
    assert [(seal.sync_weights, seal.orchestrator) for seal in seals] == [
        (True, None),
        (True, HERE),
        (True, None),
        (False, None),
    ]
    assert story.seal(1, 2) == seals[1], "who asks later reads what was sealed"


def test_without_a_wish_the_run_ends_once_every_rank_consumed_the_last_step(shutdown):
    shutdown.story.seal(shutdown.attempt, 1)
    shutdown.story.seal(shutdown.attempt, 2, last=True)
    shutdown.story.ack(shutdown.attempt, {0: 2, 1: 1})
    assert "[1]" in shutdown.conclude().reason
    shutdown.story.ack(shutdown.attempt, {1: 2})
    assert shutdown.conclude().end_of_run
    assert shutdown.story.run.ended


def test_a_request_that_comes_while_the_last_step_is_trained_is_offered(shutdown):
    assert shutdown.do_steps().sync_weights is False
    shutdown.story.ledger.request_sync("run", None)
    offer = shutdown.conclude()
    assert offer == Offer(number=1, version=PolicyVersion(attempt=1, number=2), sync_weights=True, orchestrator=HERE)
    assert shutdown.conclude() == offer


def test_the_next_offer_waits_for_the_ranks_for_the_report_and_for_a_moment(shutdown, clock):
    shutdown.story.ledger.request_sync("run", None)
    assert shutdown.do_steps().sync_weights is True
    assert "report" in shutdown.conclude().reason, "the last step's own sync is under way"
    shutdown.report(SyncOutcome.FAILED)
    assert shutdown.conclude().number == 1
    assert "rank 0, 1 to be done with offer 1" in shutdown.conclude(after=1).reason
    shutdown.ack(1, 0)
    assert "rank 1 to be done" in shutdown.conclude(after=1).reason
    shutdown.ack(1, 1)
    assert "report of a sync of version 1.2" in shutdown.conclude(after=1).reason
    shutdown.report(SyncOutcome.SKIPPED)
    assert "next try" in shutdown.conclude(after=1).reason
    clock.advance(2)
    assert shutdown.conclude(after=1).number == 2
    shutdown.report(SyncOutcome.LANDED)
    assert isinstance(shutdown.conclude(after=2), Seal)
    assert isinstance(shutdown.conclude(after=2), Seal)


def test_a_rank_that_lags_behind_gets_every_offer_and_then_the_end(shutdown):
    shutdown.do_steps()
    shutdown.story.ledger.request_sync("run", 2)
    shutdown.conclude()
    shutdown.report(SyncOutcome.LANDED)
    assert isinstance(shutdown.conclude(after=1), Seal)
    assert shutdown.conclude(after=0).number == 1


def test_nothing_is_offered_while_no_orchestrator_lives_and_nothing_after_the_deadline(shutdown, clock):
    shutdown.do_steps()
    shutdown.story.ledger.request_sync("run", None)
    shutdown.story.ledger.release_orchestrator("run", "one")
    held = shutdown.conclude()
    assert isinstance(held, ShutdownHold)
    assert "an orchestrator to take version 1.2" in held.reason
    assert held.deadline == clock.now + HOLD_S
    assert shutdown.story.ledger.sync_state("run").shutdown_deadline == held.deadline
    clock.advance(HOLD_S - 1)
    assert shutdown.conclude().deadline == held.deadline, "the deadline does not move"
    clock.advance(1)
    assert shutdown.conclude().end_of_run
    assert shutdown.story.kinds[-2:] == ["sync_expired", "ended"]


def test_a_hold_that_lives_gets_the_last_version_once(shutdown):
    shutdown.do_steps()
    shutdown.story.ledger.hold_sync("run", "eval", 60.0)
    assert shutdown.conclude().number == 1
    shutdown.report(SyncOutcome.LANDED)
    assert shutdown.conclude(after=1).end_of_run


def test_an_attempt_that_begins_at_the_end_offers_its_base(story, clock):
    story.begin()
    story.seal(1, 1)
    story.seal(1, 2, last=True)
    clock.advance(31)
    story.begin(story.cursor(2), world_size=1, dp_world_size=1)
    story.ledger.lease_orchestrator("run", "one", "host:9", 3600.0)
    story.ledger.request_sync("run", None)
    story.open(2, next_step=3, takes_offers=True)
    end = story.propose(3, end_of_run=True)
    opening = story.ledger.get_offer(story.uid, story.key(2), 0)
    assert (opening.version, opening.sync_weights) == (PolicyVersion(attempt=1, number=2), False)
    offer = story.ledger.conclude(story.uid, story.key(2), end, after=0, hold_s=HOLD_S)
    assert (offer.number, offer.version) == (1, opening.version)


def test_a_new_attempt_forgets_offers_and_the_deadline(shutdown, story, clock):
    shutdown.do_steps()
    story.ledger.request_sync("run", None)
    shutdown.conclude()
    clock.advance(31)
    story.begin(story.cursor(1))
    assert story.ledger.get_offer(story.uid, story.key(2), 1) is None
    assert story.ledger.sync_state("run").shutdown_deadline is None
    with pytest.raises(StaleAttemptError):
        shutdown.ack(1)


def test_an_ack_of_an_offer_that_was_not_made_or_by_no_rank_is_refused(shutdown):
    with pytest.raises(InvalidRequestError, match="acknowledges offer 1"):
        shutdown.ack(1)
    with pytest.raises(InvalidRequestError, match="by rank 7"):
        shutdown.ack(0, 7)
    with pytest.raises(AttemptMismatchError, match="done with offer 3"):
        shutdown.story.open(1, 0, takes_offers=True, acked_offer=3)


def test_a_run_has_one_orchestrator_until_its_lease_ends(story, clock):
    lease = story.ledger.lease_orchestrator
    first = lease("run", "one", "host:9", 30.0)
    assert (first.orchestrator, first.expire_time) == (HERE, clock.now + 30)
    with pytest.raises(OrchestratorAliveError, match=r"'one' at host:9, for at least 30\.0 s") as refused:
        lease("run", "two", "host:8", 30.0)
    assert refused.value.details["wait_s"] == "30.000"
    clock.advance(20)
    assert lease("run", "one", "host:9", 30.0).orchestrator == HERE
    clock.advance(29)
    with pytest.raises(OrchestratorAliveError):
        lease("run", "two", "host:8", 30.0)
    clock.advance(1)
    assert lease("run", "two", "host:8", 30.0).orchestrator == OrchestratorAddress(epoch=2, address="host:8")
    story.ledger.release_orchestrator("run", "one")
    assert story.ledger.sync_state("run").lease.holder == "two", "only its holder gives a lease back"
    story.ledger.release_orchestrator("run", "two")
    assert story.ledger.sync_state("run").lease is None
    assert lease("run", "two", "host:8", 30.0).orchestrator.epoch == 3, "a lease that ended is another one"
    assert lease("run", "two", "host:7", 30.0).orchestrator.epoch == 4, "and so is another address"
