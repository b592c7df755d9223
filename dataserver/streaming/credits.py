"""How many micro-batches a rank is ready to take."""

import asyncio

from dataserver.errors import InvalidRequestError

# Credits of one message, and credits that may be open in all. A client needs tens.
MOST_CREDITS = 1024
MOST_OPEN_CREDITS = 4 * MOST_CREDITS


class Credits:
    """Counts down with each micro-batch; who finds none waits on `available`.

    `granted`: all that there were. `at_a_time`: how many come with a grant, by the newest one; before there is one,
    half of the opening's, which is when clients give them back.
    """

    def __init__(self) -> None:
        self.left = self.granted = self.at_a_time = 0
        self._available: asyncio.Future[None] | None = None

    def grant(self, count: int) -> None:
        """Add `count`. Raises `InvalidRequestError` on a number that no client needs."""
        if not 1 <= count <= MOST_CREDITS:
            raise InvalidRequestError(f"credits = {count}: give 1 to {MOST_CREDITS}")
        if self.left + count > MOST_OPEN_CREDITS:
            raise InvalidRequestError(
                f"{count} credits on top of {self.left} unused ones exceed {MOST_OPEN_CREDITS}: "
                "grant as many as were used up"
            )
        self.at_a_time = count if self.granted else -(-count // 2)
        self.left += count
        self.granted += count
        if self._available is not None and not self._available.done():
            self._available.set_result(None)

    def available(self) -> "asyncio.Future[None]":
        """Done when there is at least one credit."""
        if self._available is None or (self._available.done() and not self.left):
            self._available = asyncio.get_running_loop().create_future()
            if self.left:
                self._available.set_result(None)
        return self._available

    def take(self, most: int) -> int:
        """Use up to `most` of them; how many. There must be one."""
        if self.left < 1:
            raise RuntimeError("a credit was taken that was not there")
        taken = min(self.left, most)
        self.left -= taken
        return taken
