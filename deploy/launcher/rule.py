"""Who ends whom: what follows from the end of a process. Pure; `supervisor` carries it out.

| ended          | with 0                                      | otherwise                                |
|----------------|---------------------------------------------|------------------------------------------|
| trainer        | the orchestrator finishes, then all is over | the job ends at once, with its exit code |
| any other      | it stays down                               | restarted; at the limit it stays down    |

So nobody but the trainer takes the job down, and a clean end takes nobody down.
"""

from dataclasses import dataclass
from enum import StrEnum

LONGEST_BACKOFF_S = 60.0
"""Longer waits only look like a hang."""


class Kind(StrEnum):
    """What follows."""

    LEAVE = "leave"
    RESTART = "restart"
    GIVE_UP = "give_up"
    FINISH = "finish"
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When a process that crashes is started again."""

    restarts: int
    backoff_s: float
    steady_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """A process ended: with which code, after how long, and how many crashes in a row came before."""

    name: str
    code: int
    lived_s: float
    crashes_before: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What follows from an end. `crashes` counts those in a row, this one included."""

    kind: Kind
    crashes: int = 0
    wait_s: float = 0.0


def judge(end: End, limits: Limits) -> Verdict:
    """What follows from `end`."""
    if end.name == "trainer":
        return Verdict(kind=Kind.FAIL if end.code else Kind.FINISH)
    if end.code == 0:
        return Verdict(kind=Kind.LEAVE)
    crashes = 1 + (end.crashes_before if end.lived_s < limits.steady_s else 0)
    if crashes > limits.restarts:
        return Verdict(kind=Kind.GIVE_UP, crashes=crashes)
    # The exponent is bounded, or the power overflows long before the minimum is taken.
    wait_s = min(limits.backoff_s * 2 ** min(crashes - 1, 16), LONGEST_BACKOFF_S)
    return Verdict(kind=Kind.RESTART, crashes=crashes, wait_s=wait_s)
