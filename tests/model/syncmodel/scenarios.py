"""Which of all that can happen is switched on: small enough to look at every state of it."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Two ranks that take offers and an orchestrator that is there from the beginning, if `led`; `trains`: there is a
    job at all.

    `mishaps` says how often each of these may happen: last (is requested), request (of any version), after (the same,
    at or after), hold (of an eval), fail (of a transfer), contradiction (trainer and orchestrator report one sync
    differently), crash (of the job), reconnect (of a rank), mixed (a rank opens without offers), wrong_ack (of an offer
    that was never made), gone (the orchestrator leaves for good), patience (the shutdown deadline
    passes), takeover (an orchestrator asks for the lease), moment (half an orchestrator's lease goes by).
    """

    steps: int = 1
    led: bool = True
    trains: bool = True
    mishaps: dict[str, int] = field(default_factory=dict)


LAST = Scenario(mishaps={"last": 1, "fail": 1})
HELD = Scenario(mishaps={"hold": 1, "fail": 1})
REQUESTS = Scenario(mishaps={"request": 1})
CRASH = Scenario(mishaps={"last": 1, "crash": 1})
CONTRADICTION = Scenario(mishaps={"last": 1, "contradiction": 1})
MIXED = Scenario(mishaps={"last": 1, "mixed": 1, "fail": 1})
WRONG_ACK = Scenario(mishaps={"last": 1, "wrong_ack": 1, "fail": 1})
GONE = Scenario(mishaps={"last": 1, "gone": 1, "patience": 1})
LEASES = Scenario(led=False, trains=False, mishaps={"takeover": 4, "moment": 3})

# Several things at once: too much for every day.
DEEP = {
    "a crash and a failed sync": Scenario(mishaps={"last": 1, "crash": 1, "fail": 1}),
    "a failed sync and a broken connection": Scenario(mishaps={"last": 1, "fail": 1, "reconnect": 1}),
    "two failed syncs": Scenario(mishaps={"last": 1, "fail": 2}),
    "two steps, two requests and a failed sync": Scenario(steps=2, mishaps={"request": 1, "after": 1, "fail": 1}),
    "a crash, a hold and the last version": Scenario(mishaps={"last": 1, "crash": 1, "hold": 1}),
}
