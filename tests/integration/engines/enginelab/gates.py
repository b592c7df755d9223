"""A scorer that waits for the test: so it is the test that says when an answer is done, and the next one is asked."""

import threading
from typing import Any

PATIENCE_S = 300.0


class Gate:
    """Where the answers of one eval wait. `arrived`: how many came so far."""

    def __init__(self) -> None:
        self.arrived = 0
        self._permits = threading.Semaphore(0)

    def let(self, answers: int) -> None:
        """Let so many answers go on."""
        self._permits.release(answers)

    def wait(self) -> None:
        self.arrived += 1
        if not self._permits.acquire(timeout=PATIENCE_S):
            raise TimeoutError("the test let no answer go on")


# By the name that a prompt's line has in `gate`.
gates: dict[str, Gate] = {}


def score(_answer: str, line: dict[str, Any]) -> float:
    """The scorer."""
    gates[line["gate"]].wait()
    return 1.0
