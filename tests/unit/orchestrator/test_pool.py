"""Which engine is lent to whom: only whole and newest weights, pins that hold, loans that are given back."""

import asyncio

import pytest
from orchlab import run_state

from dataserver.weight_sync import PolicyVersion, SyncOutcome, SyncState, WeightSync
from orchestrator.labels import label_of
from orchestrator.members import MemberState
from orchestrator.pool import Pool


class Named:
    """An engine that nobody calls."""

    def __init__(self, name: str) -> None:
        self.name = name


def version(number: int, attempt: int = 1) -> PolicyVersion:
    return PolicyVersion(attempt=attempt, number=number)


def sync_id(of: PolicyVersion) -> str:
    return f"{of.attempt:016x}{of.number:016x}"


def land(pool: Pool, members, landed: PolicyVersion, *, sender: int | None = None) -> None:
    for member in members:
        pool.land(member, landed, sync_id(landed), attempt=sender or landed.attempt)


def label(of: PolicyVersion) -> str:
    return label_of(of, sync_id(of))


def state(*, attempt: int = 1, landed: PolicyVersion | None = None) -> SyncState:
    syncs = (WeightSync(sync_id=sync_id(landed), version=landed, outcome=SyncOutcome.LANDED),) if landed else ()
    return run_state(attempt=attempt, landed=landed, syncs=syncs)


@pytest.fixture
def pool() -> Pool:
    pool = Pool([Named("one"), Named("two")])  # type: ignore[list-item]
    for member in pool.members:
        pool.see(member, None, workers=1)
    return pool


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def borrow(pool: Pool, lent: list, wanted: PolicyVersion | None = None, *, pin: bool = False) -> None:
    async with pool.lend(wanted, pin=pin) as loan:
        lent.append((loan.engine.name, loan.version))
        await asyncio.Event().wait()


async def test_an_engine_without_landed_weights_gets_no_work_until_they_land(pool: Pool) -> None:
    lent: list = []
    waiting = asyncio.ensure_future(borrow(pool, lent))
    await settled()
    assert not lent
    assert len(pool.stale()) == 2
    land(pool, [pool.members[1]], version(0))
    await settled()
    assert lent == [("two", version(0))]
    waiting.cancel()
    await settled()
    assert [member.loans for member in pool.members] == [0, 0]


async def test_loans_go_to_the_least_busy_engine_that_serves_the_newest(pool: Pool) -> None:
    land(pool, pool.members, version(3))
    lent: list = []
    tasks = [asyncio.ensure_future(borrow(pool, lent)) for _ in range(4)]
    await settled()
    assert [member.loans for member in pool.members] == [2, 2]
    land(pool, [pool.members[0]], version(4))
    tasks += [asyncio.ensure_future(borrow(pool, lent)) for _ in range(3)]
    await settled()
    assert [member.loans for member in pool.members] == [5, 2]
    assert pool.stale() == [pool.members[1]]
    for task in tasks:
        task.cancel()


async def test_a_pin_is_granted_in_the_moment_of_landing_and_keeps_its_engine_from_transfers(pool: Pool) -> None:
    lent: list = []
    pinned = asyncio.ensure_future(borrow(pool, lent, version(5), pin=True))
    await settled()
    land(pool, pool.members, version(5))
    # Not a turn of the loop later, and the engine is no longer free.
    assert [member.name for member in pool.free()] == ["two"]
    land(pool, [pool.members[1]], version(6))
    await settled()
    assert lent == [("one", version(5))]
    assert pool.serving(version(5))
    pinned.cancel()
    await settled()
    assert [member.name for member in pool.free()] == ["one", "two"]
    assert pool.stale() == [pool.members[0]]


async def test_whoever_stops_waiting_in_the_moment_of_the_grant_leaves_no_loan_behind(pool: Pool) -> None:
    lent: list = []
    waiting = asyncio.ensure_future(borrow(pool, lent, version(1), pin=True))
    await settled()
    land(pool, pool.members, version(1))
    waiting.cancel()
    await settled()
    assert not lent
    assert [(member.loans, member.pins) for member in pool.members] == [(0, 0), (0, 0)]


@pytest.mark.parametrize("moved", ["take", "tear", "lose"])
async def test_an_engine_in_a_transfer_torn_or_away_gets_no_work(pool: Pool, moved: str) -> None:
    land(pool, [pool.members[0]], version(2))
    getattr(pool, moved)(pool.members[0], *(["fault"] if moved != "take" else []))
    lent: list = []
    waiting = asyncio.ensure_future(borrow(pool, lent))
    await settled()
    assert not lent
    waiting.cancel()


async def test_a_rewind_takes_work_from_engines_whose_version_is_gone(pool: Pool) -> None:
    pool.note(state(landed=version(5)))
    land(pool, [pool.members[0]], version(7))
    pool.see(pool.members[1], label(version(5)), workers=1)
    assert pool.newest == version(7)
    pool.note(state(landed=version(5)))
    assert pool.newest == version(7)
    pool.note(state(attempt=2, landed=version(5)))
    assert pool.newest == version(5)
    assert pool.stale() == [pool.members[0]]
    lent: list = []
    waiting = asyncio.ensure_future(borrow(pool, lent))
    await settled()
    assert lent == [("two", version(5))]
    waiting.cancel()


async def test_what_a_displaced_attempt_lands_late_is_served_to_nobody(pool: Pool) -> None:
    one, two = pool.members
    pool.note(state(attempt=1, landed=version(5)))
    pool.take(one)
    pool.note(state(attempt=2, landed=version(5)))
    pool.see(two, label(version(5)), workers=1)
    land(pool, [one], version(700, attempt=1))
    assert pool.newest == version(5)
    assert pool.stale() == [one]
    land(pool, [one], version(6, attempt=2))
    assert pool.newest == version(6, attempt=2)
    assert pool.stale() == [two]


@pytest.mark.parametrize("heard_first", [True, False])
async def test_what_an_attempt_began_with_is_served_as_soon_as_it_landed_though_an_earlier_one_made_it(
    pool: Pool, heard_first: bool
) -> None:
    pool.note(state(attempt=1, landed=version(3)))
    if heard_first:
        pool.note(state(attempt=2, landed=version(3)))
    land(pool, pool.members, version(5), sender=2)
    assert (pool.newest, pool.stale()) == (version(5), [])
    pool.note(state(attempt=2, landed=version(3)))
    assert (pool.newest, pool.stale()) == (version(5), [])
    pool.note(state(attempt=3, landed=version(3)))
    assert (pool.newest, pool.stale()) == (version(3), list(pool.members))


async def test_an_engine_that_comes_back_with_old_weights_is_stale_though_whole(pool: Pool) -> None:
    land(pool, pool.members, version(4))
    pool.lose(pool.members[0], "no answer")
    land(pool, [pool.members[1]], version(8))
    pool.see(pool.members[0], label(version(4)), workers=1)
    assert pool.members[0].state is MemberState.READY
    assert pool.stale() == [pool.members[0]]


async def test_a_pinned_loan_must_name_its_version(pool: Pool) -> None:
    with pytest.raises(ValueError, match="names its version"):
        async with pool.lend(pin=True):
            pass


async def test_an_engine_that_another_run_left_at_the_same_version_is_stale(pool: Pool) -> None:
    land(pool, [pool.members[0]], version(3))
    pool.see(pool.members[1], label_of(version(3), "f" * 32), workers=1)
    assert pool.stale() == [pool.members[1]]
    assert pool.version_of(label(version(3))) == version(3)
    assert {pool.version_of(other) for other in (label_of(version(3), "f" * 32), "default", None)} == {None}


async def test_the_ledger_says_later_that_what_an_engine_serves_has_landed(pool: Pool) -> None:
    pool.see(pool.members[0], label(version(6)), workers=1)
    assert pool.stale() == list(pool.members)
    pool.note(state(landed=version(6)))
    assert pool.stale() == [pool.members[1]]


async def test_hearing_nothing_new_of_the_run_wakes_nobody() -> None:
    woken: list[int] = []
    pool = Pool([Named("one")], changed=lambda: woken.append(1))  # type: ignore[list-item]
    pool.note(state())
    woken.clear()
    pool.note(state())
    assert woken == []
