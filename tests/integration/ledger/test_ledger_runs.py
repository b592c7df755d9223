"""Runs come into being once, are found by name, and go without a trace."""

import pytest
from sqlalchemy import func, select

from dataserver.errors import (
    AttemptAliveError,
    InvalidRequestError,
    OutOfRangeError,
    RunConflictError,
    RunNotFoundError,
)
from dataserver.ledger import schema
from dataserver.run_spec import BatchSpec, RunSpec


def test_a_new_run_stands_at_the_beginning(story, clock):
    run = story.run
    assert (run.name, run.spec, run.order_fingerprint) == ("run", story.spec, story.fingerprint)
    assert run.committed == story.cursor(0)
    assert (run.sealed_step, run.consumed_step, run.acked_steps, run.last_attempt) == (0, 0, (), 0)
    assert run.attempt is None
    assert run.ended is False
    assert run.create_time == clock.now


def test_creating_a_run_again_finds_it(story):
    run, created = story.ledger.create_run("run", story.spec, story.fingerprint, epoch_samples=10)
    assert not created
    assert run == story.run
    assert story.kinds == ["created"]


def test_creating_a_run_again_with_another_batch_spec_makes_it_the_runs_visibly(story, clock):
    first = story.begin()
    story.seal(1, 1)
    other = RunSpec(order=story.spec.order, batch=BatchSpec(step_samples=5, micro_batch_tokens=64))
    for _ in range(2):
        run, created = story.ledger.create_run("run", other, story.fingerprint, epoch_samples=10)
        assert not created
        assert run == story.run
        assert run.spec == other
    assert run.attempt.batch == first.batch, "an attempt keeps what it began with"
    assert story.kinds.count("batch_changed") == 1
    event = story.ledger.list_events("run", 100)[-1]
    assert (event.kind, event.step) == ("batch_changed", 1)
    assert event.detail == "step_samples: 2 -> 5, micro_batch_tokens: 16 -> 64"
    clock.advance(31)
    assert story.begin().batch == other.batch


def test_another_order_under_the_name_is_refused_with_what_differs(story):
    spec, fingerprint = story.other_order(seed=3, max_length=7)
    with pytest.raises(RunConflictError, match=r"seed \(there: 0, asked: 3\), max_length \(there: 8, asked: 7\)") as e:
        story.ledger.create_run("run", spec, fingerprint, epoch_samples=10)
    assert e.value.details["fields"] == "seed,max_length"
    assert story.run.order_fingerprint == story.fingerprint


@pytest.mark.parametrize("name", ["", "-x", "a/b", "x" * 129, "a\0b", "a b"])
def test_a_name_that_is_none_is_refused(story, name):
    with pytest.raises(InvalidRequestError):
        story.ledger.create_run(name, story.spec, story.fingerprint, epoch_samples=10)


def test_an_unknown_run_is_named(story):
    for call in (
        story.ledger.get_run,
        story.ledger.delete_run,
        lambda name: story.ledger.rewind_run(name, 0),
        lambda name: story.ledger.list_events(name, 1),
        lambda name: story.ledger.request_sync(name, 1),
    ):
        with pytest.raises(RunNotFoundError, match="'nosuch'"):
            call("nosuch")


@pytest.mark.parametrize("name", ["", "a\0b", "\ud800", "x" * 1000])
def test_garbage_for_a_name_is_refused_before_the_database_sees_it(story, name):
    with pytest.raises(InvalidRequestError):
        story.ledger.get_run(name)


def test_runs_are_listed_by_name_in_pages(story):
    for name in ("b", "a", "c"):
        story.ledger.create_run(name, story.spec, story.fingerprint, epoch_samples=10)
    assert [run.name for run in story.ledger.list_runs(2)] == ["a", "b"]
    assert [run.name for run in story.ledger.list_runs(9, after="b")] == ["c", "run"]


def test_a_deleted_run_leaves_nothing_behind(story, database, clock):
    story.begin()
    story.open(1)
    story.seal(1, 1)
    story.commit(1, 1, "file:///1")
    story.ledger.request_sync("run", 7)
    story.ledger.hold_sync("run", "hold", 60)
    story.begin(story.cursor(1), holder="launcher-b", take_over=True)
    clock.advance(1000)
    story.ledger.delete_run("run")
    for table in schema.metadata.tables.values():
        if table is not schema.schema_version:
            count = database.read(lambda c, t=table: c.execute(select(func.count()).select_from(t)).scalar_one())
            assert count == 0, table.name
    assert story.ledger.get_seal(story.uid, 1) is None
    for call in (lambda: story.seal(1, 2), lambda: story.ledger.progress(story.uid)):
        with pytest.raises(RunNotFoundError, match="deleted"):
            call()
    story.ledger.close_stream(story.streams[0])


def test_a_run_of_a_deleted_name_is_another_run(story):
    story.ledger.delete_run("run")
    again, created = story.ledger.create_run("run", story.spec, story.fingerprint, epoch_samples=10)
    assert created
    assert again.uid != story.uid


def test_a_run_is_not_deleted_under_a_live_trainer(story, clock):
    story.begin()
    with pytest.raises(AttemptAliveError, match="launcher-a"):
        story.ledger.delete_run("run")
    clock.advance(30)
    story.ledger.delete_run("run")


def test_the_history_is_numbered_and_read_in_pages(story):
    story.begin()
    story.seal(1, 1)
    story.commit(1, 1, "file:///1")
    story.seal(1, 2, end_of_run=True)
    events = story.ledger.list_events("run", 100)
    assert [event.number for event in events] == [1, 2, 3, 4]
    assert [(e.kind, e.attempt, e.step) for e in events] == [
        ("created", 0, 0),
        ("attempt_begun", 1, 0),
        ("committed", 1, 1),
        ("ended", 1, 1),
    ]
    assert story.ledger.list_events("run", 2, after=1) == events[1:3]


def test_an_attempt_of_the_past_is_still_told(story, clock):
    first = story.begin()
    clock.advance(31)
    second = story.begin(holder="launcher-b", world_size=4)
    assert story.ledger.get_attempt("run", 2) == second
    told = story.ledger.get_attempt("run", 1)
    assert (told.number, told.holder, told.world_size, told.base) == (1, "launcher-a", 2, first.base)
    for number in (0, 3):
        with pytest.raises(OutOfRangeError, match=f"no attempt {number}"):
            story.ledger.get_attempt("run", number)
