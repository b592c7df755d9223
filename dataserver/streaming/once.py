"""Each value computed once, whoever asks: a bounded cache of tasks."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Once(Generic[K, V]):
    """Tasks by key. A failure is told to all who wait for it and then forgotten, so that the next one tries again.

    At most `limit` finished values are kept; the one that was asked for longest ago goes first.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._tasks: OrderedDict[K, asyncio.Task[V]] = OrderedDict()

    def start(self, key: K, make: Callable[[], Coroutine[Any, Any, V]]) -> asyncio.Task[V]:
        """The task for `key`, begun with `make` if there is none. Do not cancel it: others may share it."""
        task = self._tasks.get(key)
        if task is None:
            task = asyncio.get_running_loop().create_task(make())
            self._tasks[key] = task
            task.add_done_callback(lambda done: self._settle(key, done))
        self._tasks.move_to_end(key)
        return task

    async def get(self, key: K, make: Callable[[], Coroutine[Any, Any, V]]) -> V:
        """The value for `key`. One who stops waiting does not stop the work."""
        return await asyncio.shield(self.start(key, make))

    def peek(self, key: K) -> V | None:
        """The value for `key` if it is there already."""
        task = self._tasks.get(key)
        if task is None or not task.done() or task.cancelled() or task.exception() is not None:
            return None
        return task.result()

    def cancel(self) -> None:
        """Stop all that is under way, and forget everything."""
        for task in self._tasks.values():
            task.cancel()
        self._tasks.clear()

    def _settle(self, key: K, task: asyncio.Task[V]) -> None:
        # Reading the exception keeps asyncio from reporting one that nobody waited for.
        if (task.cancelled() or task.exception() is not None) and self._tasks.get(key) is task:
            del self._tasks[key]
        excess = len(self._tasks) - self._limit
        for old in [old for old, kept in self._tasks.items() if kept.done()][: max(0, excess)]:
            del self._tasks[old]
