"""The micro-batches of a stream's steps, encoded some groups ahead of what is sent.

    steps ──begin──> groups of rounds ──a few at a time──> encoded ──take──> sent

Small micro-batches share a group: a thread's turn and, as far as credits go, a message. Behind the last group of a step
follow those of the next one, if that is ready: the stream would else stand still between steps for as long as a
group is gathered.
"""

import asyncio
from collections import deque
from typing import Final

from dataserver.batching.encode import Encoded
from dataserver.planning.plan import Plan
from dataserver.streaming.supply import ReadyStep, Supply

# Groups that are encoded before their credit is there. Memory: this many messages a stream.
ENCODED_AHEAD: Final = 2

# What a group of small micro-batches may come to, by the bound on their sizes: eight of 32,768 tokens of 4 bytes, which
# come to a megabyte and are half of a client's credits. A message costs the two sides some tenths of a millisecond
# whatever its size, which is no more than copying this much does.
TOGETHER_BYTES: Final = 7 << 18


class Encodings:
    """Encodes what a supply has ready. `max_message_bytes`: of a message."""

    def __init__(self, supply: Supply, max_message_bytes: int) -> None:
        self._supply = supply
        self._limit = min(TOGETHER_BYTES, max_message_bytes)
        self._last_step = 0
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
            self._last_step = plan.step
            groups = self._supply.fetches.groups(plan, self._supply.batch, self._limit)
            self._to_do.extend((ready, plan, rounds) for rounds in groups)

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
