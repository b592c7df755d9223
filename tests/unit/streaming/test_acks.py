"""Acks of many ranks are written together, and none is lost when writing fails."""

import asyncio
from collections.abc import Mapping

import pytest

from dataserver.errors import PreconditionError, UnavailableError
from dataserver.streaming.acks import Acks


class Ledger:
    """Notes what it is told, once it is let."""

    def __init__(self) -> None:
        self.told: list[dict[int, int]] = []
        self.faults: list[Exception] = []
        self.asked = asyncio.Event()
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()

    async def record(self, acks: Mapping[int, int]) -> int:
        self.asked.set()
        await self.may_go_on.wait()
        if self.faults:
            raise self.faults.pop()
        self.told.append(dict(acks))
        return len(self.told)


async def test_acks_that_come_while_others_are_written_share_the_next_transaction() -> None:
    ledger = Ledger()
    acks: Acks[int] = Acks(ledger.record)
    assert await acks.flush() is None
    ledger.may_go_on.clear()
    acks.add(0, 1)
    first = asyncio.create_task(acks.flush())
    await ledger.asked.wait()
    for step in (1, 2):
        for rank in range(16):
            acks.add(rank, step)
    assert acks.waiting
    ledger.may_go_on.set()
    assert await first == 1
    assert await acks.flush() == 2
    assert ledger.told == [{0: 1}, dict.fromkeys(range(16), 2)]
    assert not acks.waiting


async def test_acks_that_could_not_be_written_are_kept_and_newer_ones_prevail() -> None:
    ledger = Ledger()
    acks: Acks[int] = Acks(ledger.record)
    ledger.may_go_on.clear()
    ledger.faults = [UnavailableError("the database is away")]
    acks.add(0, 3)
    acks.add(1, 3)
    flushing = asyncio.create_task(acks.flush())
    await ledger.asked.wait()
    acks.add(1, 4)
    ledger.may_go_on.set()
    with pytest.raises(UnavailableError):
        await flushing
    await acks.flush()
    assert ledger.told == [{0: 3, 1: 4}]


async def test_acks_of_an_attempt_that_is_over_are_dropped() -> None:
    ledger = Ledger()
    acks: Acks[int] = Acks(ledger.record)
    ledger.faults = [PreconditionError("the attempt is over")]
    acks.add(0, 3)
    with pytest.raises(PreconditionError):
        await acks.flush()
    assert not acks.waiting


async def test_acks_of_a_flush_that_was_cancelled_are_told_by_the_next() -> None:
    told: list[dict[int, int]] = []
    reached = asyncio.Event()

    async def record(acks: Mapping[int, int]) -> None:
        told.append(dict(acks))
        if len(told) == 1:
            reached.set()
            await asyncio.get_running_loop().create_future()

    acks = Acks(record)
    acks.add(0, 7)
    acks.add(1, 7)
    flushing = asyncio.create_task(acks.flush())
    await reached.wait()
    acks.add(1, 8)
    flushing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await flushing
    assert acks.waiting
    await acks.flush()
    assert told[1:] == [{0: 7, 1: 8}]
    assert not acks.waiting
