"""Credits: one for each micro-batch, and not more than a client can need."""

import pytest

from dataserver.errors import InvalidRequestError
from dataserver.streaming.credits import MOST_CREDITS, MOST_OPEN_CREDITS, Credits


@pytest.mark.parametrize("count", [0, -1, MOST_CREDITS + 1, 2**31 - 1])
def test_a_count_out_of_range_is_refused_and_changes_nothing(count: int) -> None:
    granted = Credits()
    with pytest.raises(InvalidRequestError, match=f"credits = {count}"):
        granted.grant(count)
    assert granted.left == 0


def test_credits_that_nobody_uses_up_are_refused_at_a_bound() -> None:
    granted = Credits()
    while granted.left < MOST_OPEN_CREDITS:
        granted.grant(MOST_CREDITS)
    with pytest.raises(InvalidRequestError, match="exceed"):
        granted.grant(1)
    assert granted.left == MOST_OPEN_CREDITS


async def test_who_waits_is_woken_by_a_grant_and_waits_again_when_it_is_used_up() -> None:
    granted = Credits()
    waiting = granted.available()
    assert not waiting.done()
    granted.grant(2)
    assert waiting.done()
    assert granted.take(1) == 1
    assert granted.available().done()
    assert granted.take(3) == 1
    assert not granted.available().done()


def test_how_many_come_at_a_time_is_known_by_the_newest_grant_and_at_first_by_the_opening() -> None:
    granted = Credits()
    for count, at_a_time, in_all in ((15, 8, 15), (7, 7, 22), (9, 9, 31)):
        granted.grant(count)
        assert (granted.at_a_time, granted.granted) == (at_a_time, in_all)
    granted.take(5)
    assert granted.granted == 31


def test_a_credit_that_is_not_there_cannot_be_taken() -> None:
    with pytest.raises(RuntimeError):
        Credits().take(1)
