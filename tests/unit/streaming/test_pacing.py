"""Pacing: which step may go, and who waits for whom."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataserver.ledger.steps import Progress
from dataserver.streaming.pacing import Pacing


def pacing(acked: list[int], sealed: int = 0, ahead: int = 1) -> Pacing:
    return Pacing(acked_steps=acked, sealed_step=sealed, max_steps_ahead=ahead)


@pytest.mark.parametrize(
    ("acked", "sealed", "ahead", "farthest"),
    [
        ([0, 0], 0, 0, 1),
        ([0, 0], 0, 1, 2),
        ([5, 3, 4], 4, 1, 5),
        ([5, 5], 5, 3, 9),
        ([2, 9], 9, 1, 9),
    ],
)
def test_a_step_may_go_up_to_so_many_beyond_the_slowest_rank_or_if_it_is_sealed(
    acked: list[int], sealed: int, ahead: int, farthest: int
) -> None:
    paced = pacing(acked, sealed, ahead)
    assert paced.permits(farthest)
    assert not paced.permits(farthest + 1)


async def test_the_last_rank_s_ack_lets_the_next_step_go() -> None:
    paced = pacing([0, 0, 0])
    third = paced.permitted(3)
    assert paced.permitted(3) is third
    assert paced.permitted(2).done()
    paced.acknowledge(0, 1)
    paced.acknowledge(2, 2)
    assert not third.done()
    assert paced.waiting
    assert paced.laggards() == [1]
    paced.acknowledge(1, 1)
    assert third.done()
    assert not paced.waiting


async def test_what_the_ledger_knows_counts_and_never_moves_down() -> None:
    paced = pacing([4, 2], sealed=4)
    waiting = paced.permitted(6)
    paced.update(Progress(attempt=1, sealed_step=3, acked_steps=(3, 4)))
    assert waiting.done()
    assert paced.consumed_step == 4
    assert paced.sealed_step == 4


async def test_a_step_that_another_server_sealed_may_go() -> None:
    paced = pacing([0, 0])
    waiting = paced.permitted(3)
    paced.note_sealed(3)
    assert waiting.done()


def test_an_ack_that_says_nothing_new_is_no_news() -> None:
    paced = pacing([3])
    assert not paced.acknowledge(0, 3)
    assert not paced.acknowledge(0, 1)
    assert paced.acknowledge(0, 4)
    assert paced.consumed_step == 4


@given(
    ranks=st.integers(1, 6),
    acks=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 8)), max_size=60),
    ahead=st.integers(0, 3),
)
def test_acks_in_any_order_come_to_the_lowest_of_the_highest(
    ranks: int, acks: list[tuple[int, int]], ahead: int
) -> None:
    paced = pacing([0] * ranks, ahead=ahead)
    highest = [0] * ranks
    for rank, step in acks:
        paced.acknowledge(rank % ranks, step)
        highest[rank % ranks] = max(highest[rank % ranks], step)
        assert paced.consumed_step == min(highest)
        assert paced.laggards() == [rank for rank in range(ranks) if highest[rank] == min(highest)]
        assert paced.permits(min(highest) + 1 + ahead)
        assert not paced.permits(min(highest) + 2 + ahead)
