"""What the state of a run's syncs shows of its requests, and that neither it nor its cost grows with the run."""

import pytest
from sqlalchemy import Connection, insert

from dataserver.ledger import runs, schema, syncs
from dataserver.weight_sync import PolicyVersion, SyncOutcome, WeightSync

LANDED, FAILED = SyncOutcome.LANDED, SyncOutcome.FAILED


@pytest.fixture
def requested(story):
    """Which requests the state shows."""
    return lambda: story.ledger.sync_state("run").requested


@pytest.fixture
def report(story):
    """Report a sync of a version."""

    def report(number: int, outcome: SyncOutcome, *, attempt: int = 1) -> None:
        version = PolicyVersion(attempt=attempt, number=number)
        story.ledger.report_sync("run", WeightSync(sync_id=f"{number:032x}", version=version, outcome=outcome))

    return report


def test_a_request_is_open_until_its_sync_is_reported_however_far_the_steps_are_sealed(story, requested, report):
    story.begin()
    for version in (1, 2, 9):
        story.ledger.request_sync("run", version)
    story.seal_up_to(1, 4)
    assert requested() == (1, 2, 9)
    report(1, FAILED)
    assert requested() == (2, 9)
    report(2, LANDED)
    assert requested() == (9,)


def test_a_request_that_was_missed_is_shown_again_after_a_rewind(story, clock, requested, report):
    story.begin()
    story.ledger.request_sync("run", 2)
    story.seal_up_to(1, 3)
    report(2, FAILED)
    assert requested() == ()
    clock.advance(31)
    story.begin(story.cursor(1))
    assert requested() == (2,)
    story.ledger.rewind_run("run", 0)
    assert requested() == (2,)


def test_what_an_attempt_before_left_without_a_report_is_not_waited_for(story, clock, requested):
    story.begin()
    story.ledger.request_sync("run", 2)
    story.seal_up_to(1, 3)
    clock.advance(31)
    story.begin(story.cursor(3))
    assert requested() == ()


def test_the_base_is_shown_until_the_sync_of_its_opening_offer_is_reported(story, requested, report):
    story.begin(story.cursor(4))
    story.ledger.request_sync("run", 4)
    assert requested() == (4,)
    story.open(1, next_step=5, takes_offers=True)
    story.seal(1, 5)
    assert requested() == (4,), "it is offered, and no report came yet"
    report(4, FAILED)
    assert requested() == ()


def test_the_last_version_is_shown_while_offers_follow_and_none_behind_it(story, requested, report):
    story.begin()
    for rank in range(2):
        story.open(1, rank, takes_offers=True)
    for version in (2, 7):
        story.ledger.request_sync("run", version)
    story.seal(1, 1)
    assert requested() == (2, 7)
    story.seal(1, 2, last=True)
    report(2, FAILED)
    assert requested() == (2,), "it is offered again"
    story.seal(1, 3, end_of_run=True)
    assert requested() == ()


def test_of_many_requests_the_first_are_shown(story, database, requested):
    story.begin()
    rows = [{"run_uid": story.uid, "version": version} for version in range(1, 1502)]
    database.write(lambda connection: connection.execute(insert(schema.sync_requests), rows))
    assert requested() == tuple(range(1, 1001))


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_look_costs_the_same_after_many_syncs_as_after_few(story, database, clock):
    story.begin()

    def land(connection: Connection, first: int, after: int) -> None:
        requests = [{"run_uid": story.uid, "version": number} for number in range(first, after)]
        landed = [
            {
                "run_uid": story.uid, "sync_id": f"{number:032x}", "attempt": 1, "number": number, "outcome": LANDED,
                "seconds": 1.0, "stall_seconds": 0.1, "engines": "[]", "detail": "", "report_time": float(number),
                "offers": 0,
            }
            for number in range(first, after)
        ]  # fmt: skip
        connection.execute(insert(schema.sync_requests), requests)
        connection.execute(insert(schema.syncs), landed)
        runs.change(connection, runs.lock_by_name(connection, "run"), sealed_step=after)

    def instructions(connection: Connection) -> int:
        """How many instructions SQLite's machine takes for the state."""
        taken = 0

        def count() -> int:
            nonlocal taken
            taken += 1
            return 0

        sqlite = connection.connection.driver_connection
        sqlite.set_progress_handler(count, 1)
        try:
            shown = syncs.state(connection, runs.read_by_name(connection, "run"), clock.now)
        finally:
            sqlite.set_progress_handler(None, 0)
        assert (len(shown.syncs), shown.requested) == (100, ())
        return taken

    database.write(lambda connection: land(connection, 0, 200))
    few = database.read(instructions)
    database.write(lambda connection: land(connection, 200, 4000))
    assert database.read(instructions) < 1.2 * few
