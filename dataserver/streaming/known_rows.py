"""Plans over lazily admitted stores: the rows that a plan asks about are looked at first, off the planning threads.

    ask ──plan──> UnknownBlocksError ──fetch──> its blocks, checked ──> ask again ──> …

Planning itself reads nothing. It is asked again from the beginning, which costs little beside a block; each time it
gets as far as the first rows that nobody has looked at.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from dataserver.stores.unknown_blocks import UnknownBlocksError
from dataserver.streaming.threads import Threads

T = TypeVar("T")


async def planned(threads: Threads, ask: Callable[[], T]) -> T:
    """What `ask` returns once it knows all that it asks about; raises the first fault in row order of what it needs."""
    while True:
        try:
            return await threads.plan(ask)
        except UnknownBlocksError as unknown:
            touches = unknown.touches
        found = await asyncio.gather(*(threads.fetch(each.store, each) for each in touches), return_exceptions=True)
        for each in found:
            if isinstance(each, BaseException):
                raise each
