"""The micro-batches of a stream's steps, encoded some groups ahead of what is sent.

    steps ──begin──> groups of rounds ──a few at a time──> encoded ──take──> sent

Small micro-batches share a group: a thread's turn and, as far as credits go, a message. A group ends where the credits
of a grant end, so that it is not sent in two parts. Behind the last group of a step follow those of the next one, if
that is ready: the stream would else stand still between steps for as long as a group is gathered.

    granted   16              8       8           a step of 21 rounds, and the next one
    groups    8       8       5    3  8     …
"""

import asyncio
from collections import deque
from typing import Final

from dataserver.batching.encode import Encoded
from dataserver.planning.plan import Plan
from dataserver.streaming.credits import Credits
from dataserver.streaming.supply import ReadyStep, Supply

# Groups that are encoded before their credit is there. Memory: this many messages a stream.
ENCODED_AHEAD: Final = 2

# What a group of small micro-batches may come to, by the bound on their sizes, which is half as much again as most are.
# A message costs the two sides some tenths of a millisecond whatever its size, no more than copying a megabyte does.
TOGETHER_BYTES: Final = 7 << 19


class Encodings:
    """Encodes what a supply has ready. `max_message_bytes`: of a message."""

    def __init__(self, supply: Supply, credits: Credits, max_message_bytes: int) -> None:  # noqa: A002
        self._supply = supply
        self._credits = credits
        self._limit = min(TOGETHER_BYTES, max_message_bytes)
        self._last_step = 0
        self._rounds_begun = 0
        self._to_do: deque[tuple[ReadyStep, Plan, range]] = deque()
        self._under_way: deque[asyncio.Task[Encoded]] = deque()

    def begin(self, ready: ReadyStep, plan: Plan) -> None:
        """Encode the micro-batches of a step, behind those of the steps before. Nothing, if that was begun already."""
        self._add(ready, plan)
        self._go_on()

    async def take(self) -> Encoded:
        """The next group of the steps that were begun; there must be one."""
        self._go_on()
        return await self._under_way.popleft()

    async def close(self) -> None:
        """Encode no more. Idempotent."""
        self._to_do.clear()
        for task in self._under_way:
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)

    def _add(self, ready: ReadyStep, plan: Plan) -> None:
        if plan.step > self._last_step:
            together = self._supply.fetches.together(plan, self._supply.batch, self._limit)
            credits_left = self._credits.granted - self._rounds_begun
            groups = cut(len(plan.rounds), together, credits_left=credits_left, grant=self._credits.at_a_time)
            self._to_do.extend((ready, plan, rounds) for rounds in groups)
            self._last_step = plan.step
            self._rounds_begun += len(plan.rounds)

    def _go_on(self) -> None:
        while len(self._under_way) <= ENCODED_AHEAD:
            if not self._to_do:
                following = self._supply.ready_next()
                if following is not None and isinstance(following.plan, Plan):
                    self._add(following, following.plan)
            if not self._to_do:
                return
            self._under_way.append(asyncio.create_task(self._encode(*self._to_do.popleft())))

    async def _encode(self, ready: ReadyStep, plan: Plan, rounds: range) -> Encoded:
        return await self._supply.fetches.encode(
            plan,
            rounds=rounds,
            dp_rank=self._supply.dp_rank,
            alignment=self._supply.batch.alignment,
            pad_to=self._supply.batch.pad_to,
            sync_weights=ready.stamp.sync_weights,
        )


def cut(rounds: int, together: int, *, credits_left: int, grant: int) -> list[range]:
    """The rounds of a step in groups of at most `together`, which end where the credits of a grant end.

    `credits_left`: before its first round; less than 0 where they are still to come. `grant`: how many come at a time,
    at least 1.
    """
    groups, size = [], -(-grant // -(-grant // together))
    begin = 0
    while begin < rounds:
        of_grant = (credits_left - begin) % grant or grant
        groups.append(range(begin, min(begin + size, begin + of_grant, rounds)))
        begin = groups[-1].stop
    return groups
