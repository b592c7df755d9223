"""What is known of a run's evals: those that ended, those that run, those that wait; and who wants to be told."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

from dataserver.errors import OutOfRangeError
from dataserver.weight_sync import PolicyVersion
from orchestrator.evals.sampling import Sampler
from orchestrator.evals.schedule import Due, Measurement, survives
from orchestrator.results import EvalResult, EvalState
from orchestrator.results.records import summed


@dataclass(slots=True, kw_only=True)
class Running:
    """An eval under way. `dropped`: a rewind took its weights away. `sampling`: until its answers are there."""

    sampler: Sampler
    task: "asyncio.Task[None]"
    due: int
    create_time: float
    dropped: bool = False
    sampling: bool = True

    def stop(self, *, dropped: bool) -> None:
        """Ask for no more answers; where they are there already, let them be written."""
        if self.sampling:
            self.sampling, self.dropped = False, dropped
            self.task.cancel()


@dataclass(slots=True, kw_only=True)
class Book:
    """The evals of one run, `attempt` being the current one, while a lease lives. Of one event loop."""

    run: str
    uid: str = ""
    attempt: int = 0
    bases: Sequence[tuple[int, int]] = ()
    finished: dict[Measurement, EvalResult] = field(default_factory=dict)
    running: dict[Measurement, Running] = field(default_factory=dict)
    queued: tuple[Due, ...] = ()
    triggers: set[Due] = field(default_factory=set)
    _closed: bool = False
    _since: dict[str, float] = field(default_factory=dict)
    _turn: asyncio.Event = field(default_factory=asyncio.Event)

    def note_queued(self, queued: tuple[Due, ...]) -> None:
        """What waits for a version now, from now on if it did not before."""
        if queued != self.queued:
            self.queued = queued
            self._since = {due.name: self.since(due.name) for due in queued}
            self.changed()

    def since(self, name: str) -> float:
        """Since when the eval waits; now, if it does not."""
        return self._since.get(name, time.time())

    def changed(self) -> None:
        """Tell whoever watches."""
        self._turn.set()
        self._turn = asyncio.Event()

    def close(self) -> None:
        """Nothing changes any more: end all watches. Idempotent."""
        self._closed = True
        self.changed()

    def views(self, name: str = "") -> list[EvalResult]:
        """All evals, or those of one name, the newest first."""
        running = [self._running_view(measured, each) for measured, each in self.running.items()]
        every = [*self.finished.values(), *running, *map(self.queued_view, self.queued)]
        wanted = [view for view in every if name in ("", view.name)]
        return sorted(wanted, key=lambda view: (view.create_time, view.version.number, view.name), reverse=True)

    def find(self, eval_id: str) -> EvalResult:
        """The eval of that id, or the one that measures what it was asked for; raises `OutOfRangeError`."""
        run, _, rest = eval_id.partition("/")
        label, _, name = rest.partition("/")
        version = PolicyVersion.parse(label)
        if run == self.run and version is not None:
            exact = next((view for view in self.views(name) if view.version == version), None)
            found = exact or self.meeting(Due(name=name, number=version.number))
            if found is not None:
                return found
        raise OutOfRangeError(f"there is no eval {eval_id!r}: give RUN/ATTEMPT.VERSION/NAME, as `list` shows them")

    def meeting(self, due: Due) -> EvalResult | None:
        """The first measurement, at its end or under way, that meets `due` in weights that survive."""
        meets = [
            view
            for view in self.views(due.name)
            if view.state is not EvalState.QUEUED
            and view.version.number >= due.number
            and survives(view.version, self.bases)
        ]
        return min(meets, key=lambda view: view.version.number, default=None)

    async def watch(self, name: str = "") -> AsyncIterator[EvalResult]:
        """All evals, or those of one name, the oldest first; then each again whenever it changes, until `close`."""
        known: dict[str, EvalResult] = {}
        while not self._closed:
            turn = self._turn
            for view in reversed(self.views(name)):
                if known.get(view.eval_id) != view:
                    known[view.eval_id] = view
                    yield view
            await turn.wait()

    def queued_view(self, due: Due) -> EvalResult:
        """An eval that waits, as others see it."""
        return EvalResult(
            run=self.run,
            run_uid=self.uid,
            name=due.name,
            version=PolicyVersion(attempt=self.attempt, number=due.number),
            due=due.number,
            state=EvalState.QUEUED,
            samples=0,
            scored=0,
            figures={},
            version_tokens=(),
            create_time=self.since(due.name),
            end_time=None,
        )

    def _running_view(self, measured: Measurement, running: Running) -> EvalResult:
        sampler = running.sampler
        return EvalResult(
            run=self.run,
            run_uid=self.uid,
            name=measured.name,
            version=measured.version,
            due=running.due,
            state=EvalState.RUNNING,
            samples=sampler.samples,
            scored=len(sampler.answers),
            figures={},
            version_tokens=summed(part for answer in sampler.answers for part in answer.version_tokens),
            create_time=running.create_time,
            end_time=None,
            detail=sampler.detail,
        )
