"""What is due: a pure function of the configuration, of the results that survive, and of how the run stands.

    an eval is due at     version 0, the multiples of its interval, the run's last version, triggered versions
    a due is met by       the first measurement of that eval at it or above it, in weights that survive
    ahead of the head     its version is requested, so that the step's seal asks for a sync
    at or below the head  the eval is queued. A live one holds, so that its version, or else the earliest after it,
                          lands; a pinned one holds only when its version was missed
    landed                it begins, on the version that engines serve then, and meets all dues up to that

So a version that was missed needs no rule of its own, nor does a rewind: dues whose results are gone are open
again. An eval runs once at a time; dues that pass meanwhile are met together by the next measurement.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import count, islice

from dataserver.weight_sync import PolicyVersion
from orchestrator.evals.config import EvalConfig

# Versions of each eval that are requested before their steps are sealed: more than a trainer of short steps seals
# before a request of the next one arrives.
AHEAD = 8


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Due:
    """The eval `name` is wanted of version `number`, or of the earliest after it."""

    name: str
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """The eval `name` of `version`: under way, or at its end."""

    name: str
    version: PolicyVersion


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """How a run stands.

    `bases`: (attempt, base) of every time that the run was moved, in any order. `head`: the highest sealed step;
    with `last_sealed`, the run's last version. `consumed`: the highest step whose weights have been handed over, if
    they were to be. `ended`: nothing is offered any more. `served`: the newest version that engines serve. `free`:
    whether an engine is there that no eval pins. `moving`: whether weights are on their way to engines. `settled`:
    whether no engine is awaited any more that may serve more than is seen. `finished`: measurements of all attempts
    that are not to be made again, those that failed too.
    """

    bases: Sequence[tuple[int, int]]
    head: int
    consumed: int
    last_sealed: bool
    ended: bool
    max_steps: int | None
    served: PolicyVersion | None
    free: bool
    moving: bool
    settled: bool
    running: Sequence[Measurement]
    finished: Sequence[Measurement]
    triggers: Sequence[Due] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Agenda:
    """What is to be done now; done twice, it is as if done once.

    `requests`: versions whose weights are wanted. `last`: so is the run's last. `hold`: so is that of every step.
    `begin`: evals to start. `cancel`: evals to stop, whose version a rewind dropped. `missed`: dues that nothing can
    meet any more. `queued`: what waits for a version, with the version that it is due at. `over`: nothing will be
    due again in this attempt.
    """

    requests: frozenset[int]
    last: bool
    hold: bool
    begin: tuple[Measurement, ...]
    cancel: tuple[Measurement, ...]
    missed: tuple[Due, ...]
    queued: tuple[Due, ...]
    over: bool


def survives(version: PolicyVersion, bases: Sequence[tuple[int, int]]) -> bool:
    """Whether no later attempt began below `version`."""
    return all(base >= version.number for attempt, base in bases if attempt > version.attempt)


def agenda(evals: Sequence[EvalConfig], now: Situation) -> Agenda:
    """What is to be done about `evals`."""
    views = [_view(config, now) for config in evals]
    queued = [view for view in views if view.first_open is not None and not view.is_running]
    served = now.served if now.served is not None and survives(now.served, now.bases) else None
    begin = [view for view in queued if served is not None and served.number >= view.due]
    waiting = [view for view in queued if view not in begin]
    live = [view for view in views if not view.config.pin and (view.is_running or view in begin)]
    missing = [view for view in waiting if not view.config.pin or (now.consumed >= view.due and not now.moving)]
    is_late = now.ended and now.settled
    last = any(view.config.eval_at_end and not (now.last_sealed and view.covered >= now.head) for view in views)
    upcoming = frozenset(number for view in views for number in view.upcoming)
    return Agenda(
        requests=upcoming,
        last=last and not now.ended,
        hold=not now.ended and bool(live or (missing and now.free)),
        begin=tuple(Measurement(name=view.config.name, version=served) for view in begin if served is not None),
        cancel=tuple(each for each in now.running if not survives(each.version, now.bases)),
        missed=tuple(Due(name=view.config.name, number=view.due) for view in waiting if is_late),
        queued=tuple(Due(name=view.config.name, number=view.due) for view in waiting if not is_late),
        over=now.last_sealed and not queued and not any(view.is_running for view in views),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _View:
    """One eval: `covered` is the highest version that meets dues, -1 without; `upcoming` are dues beyond the head."""

    config: EvalConfig
    is_running: bool
    covered: int
    first_open: int | None
    upcoming: tuple[int, ...]

    @property
    def due(self) -> int:
        return -1 if self.first_open is None else self.first_open


def _view(config: EvalConfig, now: Situation) -> _View:
    running = [each.version.number for each in now.running if _counts(each, config, now)]
    finished = [each.version.number for each in now.finished if _counts(each, config, now)]
    covered = max([-1, *running, *finished])
    return _View(
        config=config,
        is_running=bool(running),
        covered=covered,
        first_open=next(_dues(config, now, covered, now.head), None),
        upcoming=() if now.last_sealed else tuple(islice(_dues(config, now, now.head, now.max_steps), AHEAD)),
    )


def _counts(each: Measurement, config: EvalConfig, now: Situation) -> bool:
    return each.name == config.name and survives(each.version, now.bases)


def _dues(config: EvalConfig, now: Situation, above: int, up_to: int | None) -> Iterator[int]:
    """The versions that the eval is due at, above `above` and up to `up_to`, ascending."""
    once = {each.number for each in now.triggers if each.name == config.name}
    if config.eval_at_start:
        once.add(0)
    if config.eval_at_end and now.last_sealed:
        once.add(now.head)
    multiples = count(max(config.interval, (above // config.interval + 1) * config.interval), config.interval)
    number = above
    for due in merge(sorted(once), multiples):
        if up_to is not None and due > up_to:
            return
        if due > number:
            number = due
            yield due
