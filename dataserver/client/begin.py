"""Beginning an attempt: the one call that must not be repeated blindly.

When the answer to `BeginAttempt` is lost or late, the attempt may exist all the same, alive under our
holder until its lease runs out. Repeating the call would be refused by our own attempt, or with
`take_over` fence it. So after a lost answer the run is looked at: an attempt of our holder with
a number above the one that stood there before the call is ours, and its row is the answer. A
launcher instance begins one attempt at a time, which is what makes that sound.
"""

import logging
import time
from typing import Final

from dataserver.client.calls import Calls
from dataserver.client.failover import LOG_EVERY_S, clock
from dataserver.errors import AttemptAliveError, StoreNotReadyError, UnavailableError, WaitExpiredError
from dataserver.v1 import run_pb2, run_service_pb2

# A lease is some ten seconds or more; asking each second costs the ledger nothing.
_ASK_EVERY_S: Final = 1.0

_logger = logging.getLogger("dataserver.client")


def begin_attempt(calls: Calls, request: run_service_pb2.BeginAttemptRequest, wait_alive_s: float) -> run_pb2.Attempt:
    """Begin an attempt, waiting up to `wait_alive_s` seconds for an attempt that is alive to end."""
    before = _current(calls, request.run).number
    failover = calls.failover("RunService/BeginAttempt")
    predecessor = _Predecessor(request.run, wait_alive_s)
    answer_lost = False
    while True:
        try:
            return calls.once(
                failover, "RunService/BeginAttempt", request, run_service_pb2.BeginAttemptResponse
            ).attempt
        except UnavailableError as error:
            answer_lost |= not isinstance(error, StoreNotReadyError)
            pause = failover.failed(error)
        except AttemptAliveError as error:
            if answer_lost and (ours := _ours(calls, request, before)):
                return ours
            pause = predecessor.still_alive(error)
        except WaitExpiredError:
            if ours := _ours(calls, request, before):
                return ours
            raise
        time.sleep(pause)
        if answer_lost and (ours := _ours(calls, request, before)):
            return ours


def _current(calls: Calls, run: str) -> run_pb2.Attempt:
    """The run's current attempt; before the first, one with number 0."""
    request = run_service_pb2.GetRunRequest(run=run)
    return calls.unary("RunService/GetRun", request, run_service_pb2.GetRunResponse).run.attempt


def _ours(calls: Calls, request: run_service_pb2.BeginAttemptRequest, before: int) -> run_pb2.Attempt | None:
    attempt = _current(calls, request.run)
    return attempt if attempt.number > before and attempt.holder == request.holder else None


class _Predecessor:
    """An attempt that is alive, and how long we wait for its end."""

    def __init__(self, run: str, wait_s: float) -> None:
        self._run = run
        self._wait_s = wait_s
        self._begin = time.monotonic()
        self._begin_clock = clock()
        self._logged = self._begin - LOG_EVERY_S

    def still_alive(self, error: AttemptAliveError) -> float:
        """Seconds after which to ask again; raises `error` when the wait is over."""
        now = time.monotonic()
        left = self._begin + self._wait_s - now
        if left <= 0:
            raise error
        if now - self._logged >= LOG_EVERY_S:
            self._logged = now
            _logger.warning(
                "run %s: waiting since %s, at most %g s, for the attempt before to end: %s",
                self._run, self._begin_clock, self._wait_s, error.message,
            )  # fmt: skip
        return min(_ASK_EVERY_S, left)
