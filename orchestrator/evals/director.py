"""Has evals begin, run and end as `schedule` says.

    state of the run, engines, results ──schedule──> what is wanted of the weights     (`wants`, asked by the core)
                                            └──────> evals that begin or are cancelled
    an eval: queued ──its version landed──> running ──> done | failed, in the table of results

What is running when the orchestrator ends is forgotten, and due again for the one that follows; what has ended stands.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from dataserver.errors import DataServerError, InvalidRequestError, OutOfRangeError, PreconditionError, UnavailableError
from dataserver.sinks import Sink
from dataserver.weight_sync import PolicyVersion, SyncState
from orchestrator.evals.book import Book, Running
from orchestrator.evals.config import EvalConfig
from orchestrator.evals.history import RunHistory
from orchestrator.evals.outcome import Recorder, missed_result, result_of
from orchestrator.evals.questions import Questions
from orchestrator.evals.sampling import Sampler
from orchestrator.evals.schedule import Agenda, Due, Measurement, Situation, agenda
from orchestrator.evals.settling import Settling
from orchestrator.members import MemberState
from orchestrator.pool import Pool
from orchestrator.results import EvalResult, ResultsTable
from orchestrator.wants import Wants

log = logging.getLogger(__name__)

# While the data server or the database is out of reach: until it is asked again.
RETRY_S = 2.0


class EvalDirector:
    """All evals of a run. Of one event loop.

    `evals`: configurations, each with what it asks. `history` fetches how the run was moved. `changed` is called
    whenever `wants` may have another answer.
    """

    def __init__(
        self,
        *,
        run: str,
        evals: Sequence[tuple[EvalConfig, Questions]],
        pool: Pool,
        results: ResultsTable,
        history: Callable[[], Awaitable[RunHistory]],
        changed: Callable[[], None],
        sinks: Sequence[Sink] = (),
    ) -> None:
        self.book = Book(run=run)
        self._evals = {config.name: (config, questions) for config, questions in evals}
        self._pool = pool
        self._results = results
        self._recorder = Recorder(self.book, results, sinks)
        self._history = history
        self._changed = changed
        patience_s = max((config.drain_timeout_s for config, _ in evals), default=0.0)
        self._settling = Settling(pool, patience_s=patience_s, changed=changed)
        self._state: SyncState | None = None
        self._learned: int | None = None
        self._wants = Wants()
        self._over = False
        self._closed = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._writing_missed: set[asyncio.Task[None]] = set()
        self._learning: asyncio.Task[None] | None = None

    @property
    def idle(self) -> bool:
        """Whether nothing is queued, runs or waits to be written: then the orchestrator may end, once the run has."""
        return self._over and not self.book.running and not self._writing_missed

    def wants(self, state: SyncState) -> Wants:
        """See `Wishers`. Until it is known how the run was moved, what was wanted before."""
        if self._closed:
            return self._wants
        self._state = state
        self.book.attempt = state.attempt
        if self._learned != state.attempt:
            self._over = False
            if self._learning is None:
                self._learning = self._spawn(self._learn())
            return self._wants
        now = agenda([config for config, _ in self._evals.values()], self._situation(state))
        self._act(now, state)
        self._over = now.over
        self._wants = Wants(versions=now.requests, last=now.last, hold=now.hold)
        return self._wants

    async def trigger(self, name: str, number: int | None) -> EvalResult:
        """Ask for the eval `name` of version `number`, or of the earliest that can be had; says how it stands.

        Raises `InvalidRequestError`, `OutOfRangeError`, `PreconditionError`, `UnavailableError`.
        """
        state = self._known_state()
        if name not in self._evals:
            raise InvalidRequestError(f"there is no eval {name!r}; the configuration has: {', '.join(self._evals)}")
        if number is None:
            newest = self._pool.newest
            number = state.sealed_step + 1 if newest is None else newest.number
        last = state.sealed_step if state.last_sealed else state.max_steps
        if number < 0 or (last is not None and number > last):
            raise OutOfRangeError(f"version {number}: give one from 0 to the run's last, {last}")
        due = Due(name=name, number=number)
        if there := self.book.meeting(due):
            return there
        if state.ended:
            raise PreconditionError(
                f"run {self.book.run} has ended, and no weights land any more: nothing can be measured"
            )
        await asyncio.to_thread(self._results.trigger, self.book.uid, name, number, now=time.time())
        self.book.triggers.add(due)
        self._changed()
        return self.book.meeting(due) or self.book.queued_view(due)

    async def close(self) -> None:
        """Stop what runs, without a result; may be repeated."""
        self._closed = True
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.book.close()

    def _situation(self, state: SyncState) -> Situation:
        members = [member for member in self._pool.members if member.state in {MemberState.READY, MemberState.SYNCING}]
        newest = self._pool.newest
        return Situation(
            bases=self.book.bases,
            head=state.sealed_step,
            consumed=state.consumed_step,
            last_sealed=state.last_sealed,
            ended=state.ended,
            max_steps=state.max_steps,
            served=newest if any(member.version == newest for member in members) else None,
            free=any(not member.pins for member in members),
            moving=self._pool.moving,
            settled=state.landed is None or self._settling.is_over(ended=state.ended),
            running=list(self.book.running),
            finished=list(self.book.finished),
            triggers=list(self.book.triggers),
        )

    def _act(self, now: Agenda, state: SyncState) -> None:
        dues = {due.name: due.number for due in self.book.queued}
        for measured in now.begin:
            self._begin(measured, dues.get(measured.name, measured.version.number))
        for measured in now.cancel:
            self.book.running[measured].stop(dropped=True)
        for measured, running in self.book.running.items():
            if running.sampler.config.pin and all(m.version != measured.version for m in self._pool.members):
                running.stop(dropped=False)
        for due in now.missed:
            self._miss(due, state)
        self.book.note_queued(now.queued)

    def _begin(self, measured: Measurement, due: int) -> None:
        config, questions = self._evals[measured.name]
        sampler = Sampler(
            config=config, questions=questions, version=measured.version, pool=self._pool, progressed=self.book.changed
        )
        log.info("eval %s of version %s begins: %d answers", measured.name, measured.version, sampler.samples)
        task = self._spawn(self._run(measured, sampler))
        self.book.running[measured] = Running(
            sampler=sampler, task=task, due=due, create_time=self.book.since(measured.name)
        )

    def _miss(self, due: Due, state: SyncState) -> None:
        """Write down that nothing can meet `due` any more."""
        config, questions = self._evals[due.name]
        last = PolicyVersion(attempt=state.attempt, number=state.sealed_step)
        result = missed_result(self.book, due, last, questions.count * config.samples, at_end=config.eval_at_end)
        self.book.finished[Measurement(name=due.name, version=last)] = result
        writing = self._spawn(self._recorder.record(result, ()))
        self._writing_missed.add(writing)
        writing.add_done_callback(self._writing_missed.discard)

    async def _run(self, measured: Measurement, sampler: Sampler) -> None:
        try:
            await self._measure(measured, sampler)
        finally:
            # However it ended: a live eval that runs holds the trainer.
            del self.book.running[measured]

    async def _measure(self, measured: Measurement, sampler: Sampler) -> None:
        begun = time.monotonic()
        fault = ""
        try:
            await sampler.run()
        except asyncio.CancelledError:
            if not self.book.running[measured].dropped:
                raise
            fault = "its weights were dropped by a rewind"
        except Exception as error:
            log.warning("eval %s of version %s failed", measured.name, measured.version, exc_info=error)
            fault = f"{type(error).__name__}: {error}"
        running = self.book.running[measured]
        running.sampling = False
        seconds = time.monotonic() - begun
        result = result_of(self.book, measured, running, seconds=seconds, fault=fault)
        await self._recorder.record(result, sampler.answers)

    async def _learn(self) -> None:
        """Read what is to be known of the run's attempt until that works; what nobody foresaw may pass, too."""
        try:
            while self._learned != self.book.attempt:
                try:
                    await self._read()
                except Exception as error:
                    unforeseen = not isinstance(error, DataServerError)
                    log.warning("evals wait to learn of run %s: %s", self.book.run, error, exc_info=unforeseen)
                    await asyncio.sleep(RETRY_S)
        finally:
            self._learning = None

    async def _read(self) -> None:
        """How the run was moved, and, of a run that is new here, what has ended before."""
        attempt = self.book.attempt
        history = await self._history()
        if history.uid != self.book.uid:
            results = await asyncio.to_thread(self._results.of_run, history.uid)
            triggers = await asyncio.to_thread(self._results.triggers_of, history.uid)
            self.book.uid = history.uid
            self.book.finished = {Measurement(name=r.name, version=r.version): r for r in results}
            self.book.triggers = {Due(name=name, number=number) for name, number in triggers}
        self.book.bases, self._learned = history.bases, attempt

    def _known_state(self) -> SyncState:
        if self._state is None or self._learned is None:
            raise UnavailableError(f"run {self.book.run} is not known yet: it begins with its first trainer")
        return self._state

    def _spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("an eval could not be written", exc_info=task.exception())
        self.book.changed()
        self._changed()
