"""Once: each value computed once, failures forgotten, memory bounded."""

import asyncio

import pytest

from dataserver.streaming.once import Once


class Counted:
    """Work that counts how often it ran, and waits for a go."""

    def __init__(self, error: Exception | None = None) -> None:
        self.runs = 0
        self.go = asyncio.Event()
        self._error = error

    async def __call__(self) -> int:
        self.runs += 1
        await self.go.wait()
        if self._error is not None:
            raise self._error
        return self.runs


async def test_all_who_ask_get_one_value() -> None:
    once: Once[str, int] = Once(4)
    work = Counted()
    asking = [asyncio.ensure_future(once.get("key", work)) for _ in range(5)]
    await asyncio.sleep(0)
    assert once.peek("key") is None
    work.go.set()
    assert await asyncio.gather(*asking) == [1] * 5
    assert once.peek("key") == 1
    assert await once.get("key", work) == 1


async def test_one_who_stops_waiting_does_not_stop_the_work() -> None:
    once: Once[str, int] = Once(4)
    work = Counted()
    impatient = asyncio.ensure_future(once.get("key", work))
    patient = asyncio.ensure_future(once.get("key", work))
    await asyncio.sleep(0)
    impatient.cancel()
    await asyncio.sleep(0)
    work.go.set()
    assert await patient == 1


async def test_a_failure_is_told_to_all_who_wait_and_then_forgotten() -> None:
    once: Once[str, int] = Once(4)
    work = Counted(ValueError("no"))
    work.go.set()
    failed = await asyncio.gather(once.get("key", work), once.get("key", work), return_exceptions=True)
    assert [str(error) for error in failed] == ["no", "no"]
    with pytest.raises(ValueError, match="no"):
        await once.get("key", work)
    assert work.runs == 2


async def test_what_was_asked_for_longest_ago_is_forgotten_first() -> None:
    once: Once[int, int] = Once(2)

    async def value(key: int) -> int:
        return key

    for key in (1, 2, 1, 3):
        await once.get(key, lambda key=key: value(key))
    await asyncio.sleep(0)
    assert [once.peek(key) for key in (1, 2, 3)] == [1, None, 3]


async def test_work_under_way_is_never_forgotten() -> None:
    once: Once[int, int] = Once(1)
    slow, quick = Counted(), Counted()
    quick.go.set()
    asking = asyncio.ensure_future(once.get(1, slow))
    await asyncio.sleep(0)
    for key in (2, 3, 4):
        await once.get(key, quick)
    slow.go.set()
    assert await asking == 1
    assert slow.runs == 1
