"""Which of all that can happen is switched on: small enough to look at every state of it."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Two ranks, and what surrounds them. `mishaps` says how often each of these may happen:

    crash (of a job), server_crash, amend (of the run, by another stage), silence (a lease runs out under a live job),
    request (of weights), hold (of an eval), loss (of a message), duplicate (of an open or a close), reconnect (of a
    rank), idle (a lease's time goes by while servers renew what they hold), early_open, late_open, wrong_dp_rank,
    wrong_ack, wrong_commit (by confused ranks), lost_checkpoints, foreign_checkpoint, restore (of an older ledger).
    """

    steps: int = 2
    servers: int = 1
    holders: int = 1
    take_over: bool = False
    dp_world_sizes: tuple[int, ...] = (2,)
    lookahead: int = 1
    step_samples: tuple[int, ...] = ()
    ways: bool = False
    partitioned: bool = False
    by_version: bool = False
    any_checkpoint: bool = False
    acks: bool = False
    delayed: bool = False
    credits: int = 1
    short_servers: tuple[int, ...] = ()
    marks_last: bool = True
    other_planners: tuple[int, ...] = ()
    hasty: bool = False
    forgetful: bool = False
    mishaps: dict[str, int] = field(default_factory=dict)


CRASH = Scenario(mishaps={"crash": 1, "loss": 1}, delayed=True)
ACKS = Scenario(acks=True, delayed=True, credits=2, mishaps={"crash": 1})
PACE = Scenario(acks=True, delayed=True, credits=2, mishaps={"wrong_ack": 2})
REQUEST = Scenario(mishaps={"request": 1})
HOLD = Scenario(mishaps={"hold": 1})
TWO_LAUNCHERS = Scenario(steps=1, holders=2)
TAKE_OVER = Scenario(steps=1, holders=2, take_over=True)
RESHAPED = Scenario(dp_world_sizes=(2, 1), mishaps={"crash": 1})
LOST = Scenario(mishaps={"crash": 1, "lost_checkpoints": 1, "foreign_checkpoint": 1})
RESTORED = Scenario(by_version=True, any_checkpoint=True, mishaps={"crash": 1, "restore": 1})
CONFUSED = Scenario(mishaps={"wrong_dp_rank": 1})
SIBLINGS = Scenario(dp_world_sizes=(1,), mishaps={"wrong_dp_rank": 1})
EARLY = Scenario(acks=True, mishaps={"early_open": 1, "server_crash": 1})
HASTY = Scenario(hasty=True)
TWO_PLANNERS = Scenario(servers=2, steps=1, other_planners=(1,))
SHORT = Scenario(servers=2, short_servers=(1,), mishaps={"server_crash": 1})
SILENT_END = Scenario(servers=2, steps=1, short_servers=(1,), marks_last=False)
GARBLED = Scenario(by_version=True, mishaps={"crash": 1, "wrong_commit": 1})
WINDOW = Scenario(lookahead=2, dp_world_sizes=(1, 2), mishaps={"crash": 1})
FORGETFUL = Scenario(steps=1, forgetful=True, mishaps={"request": 1, "restore": 1})
LATE = Scenario(mishaps={"late_open": 1})
ACKED = Scenario(acks=True, mishaps={"crash": 1})

LOST_CLOSE = Scenario(steps=1, mishaps={"crash": 1, "idle": 1})
RECONNECT = Scenario(steps=1, holders=2, mishaps={"reconnect": 1, "duplicate": 1})
BRANCHES = Scenario(
    any_checkpoint=True, delayed=True, ways=True, step_samples=(2, 1, 2), mishaps={"crash": 2, "loss": 1}
)
AMENDED = Scenario(servers=2, mishaps={"amend": 1})
AMENDED_WINDOW = Scenario(steps=3, lookahead=2, mishaps={"amend": 1})
PARTITIONED = Scenario(acks=True, delayed=True, credits=2, partitioned=True, mishaps={"restore": 1})

# Several things at once: too much for every day.
DEEP = {
    "two replicas, an amendment, a crash, another size": Scenario(
        servers=2, dp_world_sizes=(2, 1), mishaps={"amend": 1, "crash": 1}
    ),
    "two replicas and a crash of each kind": Scenario(servers=2, mishaps={"crash": 1, "server_crash": 1}),
    "two replicas, a crash and a request": Scenario(servers=2, steps=1, mishaps={"server_crash": 1, "request": 1}),
    "duplicated opens, a crash and a changed size": Scenario(
        steps=1, delayed=True, dp_world_sizes=(2, 1), mishaps={"crash": 1, "duplicate": 1}
    ),
    "a window, three sizes, two crashes": Scenario(
        steps=3, lookahead=2, dp_world_sizes=(1, 2, 1), mishaps={"crash": 2}
    ),
    "two launchers that take over, and a lease that runs out": Scenario(
        steps=1, holders=2, take_over=True, mishaps={"silence": 1}
    ),
}
