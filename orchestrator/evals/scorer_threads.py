"""Functions of somebody's own, off the event loop.

Each call has a thread that nobody waits for: one that never returns costs its eval, and neither keeps results from
being written, as it would in a pool that they share, nor the process from its end.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

# Calls at a time: more would only take the interpreter's lock from each other.
MOST_AT_ONCE: Final = 32

Said = tuple[object, Exception | None]


class ScorerThreads:
    """Calls of one scorer, of one event loop. Those that were given up count no more, though they may still run."""

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(MOST_AT_ONCE)

    async def call(self, function: Callable[..., object], *arguments: object) -> object:
        """What the function returns; raises what it raises."""
        async with self._free:
            loop = asyncio.get_running_loop()
            said: asyncio.Future[Said] = loop.create_future()

            def tell(answer: Said) -> None:
                if not said.done():
                    said.set_result(answer)

            def run() -> None:
                answer: Said
                try:
                    answer = function(*arguments), None
                except BaseException as error:  # noqa: BLE001 - whatever it is, whoever waits is told
                    answer = None, error if isinstance(error, Exception) else RuntimeError(f"raised {error!r}")
                with suppress(RuntimeError):  # the loop is closed: nobody waits
                    loop.call_soon_threadsafe(tell, answer)

            threading.Thread(target=run, name="scorer", daemon=True).start()
            returned, error = await said
            if error is not None:
                raise error
            return returned
