"""All answers of one eval, many at a time over all engines, whatever fails on the way.

    todo ──loan of an engine───> answer ──> done
      ^                            │
      └── a pause, then elsewhere ─┴──> given up: refused, or failed too often

A live eval borrows whichever engine serves its version or a newer one. A pinned one keeps one engine at its version
from the first answer to the last (its *anchor*), and uses others only while they serve it too.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from dataserver.weight_sync import PolicyVersion
from orchestrator.engines.interface import Engine
from orchestrator.errors import EngineError, EngineRefusedError, EngineUnavailableError, GenerationAbortedError
from orchestrator.evals.config import EvalConfig
from orchestrator.evals.questions import Questions
from orchestrator.pool import Pool
from orchestrator.results import Answer

log = logging.getLogger(__name__)

# An answer that fails so often is given up: perhaps it is what brings engines down.
MOST_TRIES = 8
# Before an answer is asked for again; doubled with each failure. An engine that died refuses at once and would
# swallow all tries before anybody notices.
FIRST_PAUSE_S = 0.25
LONGEST_PAUSE_S = 30.0


@dataclass(slots=True, kw_only=True)
class Todo:
    """An answer that is still to be made. `tries`: how often that failed. `failed_on`: the engine that failed last."""

    prompt: int
    sample: int
    tries: int = 0
    failed_on: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class Sampler:
    """One eval of one version, while its answers are being made."""

    config: EvalConfig
    questions: Questions
    version: PolicyVersion
    pool: Pool
    progressed: Callable[[], None] = lambda: None
    answers: list[Answer] = field(default_factory=list)
    given_up: dict[str, int] = field(default_factory=dict)
    last_fault: str = ""
    _todo: deque[Todo] = field(default_factory=deque)

    @property
    def samples(self) -> int:
        """Answers that are wanted."""
        return self.questions.count * self.config.samples

    @property
    def detail(self) -> str:
        """What was given up, and why; empty where nothing was."""
        return "; ".join(f"gave up {count} of {self.samples} answers: {why}" for why, count in self.given_up.items())

    async def run(self) -> None:
        """Make all answers. What cannot be made is given up and said in `detail`; raises `ScorerError`."""
        self._todo.extend(
            Todo(prompt=prompt, sample=sample)
            for sample in range(self.config.samples)
            for prompt in range(self.questions.count)
        )
        loop = asyncio.get_running_loop()
        limit_s = self.config.drain_timeout_s
        try:
            async with asyncio.timeout(limit_s) as patience:
                await self._make_all(lambda: patience.reschedule(loop.time() + limit_s))
        except ExceptionGroup as group:
            raise group.exceptions[0] from None
        except TimeoutError:
            left = self.samples - len(self.answers) - sum(self.given_up.values())
            last = f"; the last fault: {self.last_fault}" if self.last_fault else ""
            self._give_up(f"no answer came for drain_timeout_s = {limit_s:g}{last}", left)

    async def _make_all(self, moved: Callable[[], None]) -> None:
        async with AsyncExitStack() as stack:
            if self.config.pin:
                await stack.enter_async_context(self.pool.lend(self.version, pin=True))
                moved()
            async with asyncio.TaskGroup() as workers:
                for _ in range(min(self.config.max_in_flight, len(self._todo))):
                    workers.create_task(self._work(moved))

    async def _work(self, moved: Callable[[], None]) -> None:
        while self._todo:
            todo = self._todo.popleft()
            if await self._make(todo):
                moved()
                self.progressed()

    async def _make(self, todo: Todo) -> bool:
        """Make one answer, or put it back; whether it is done with."""
        try:
            async with self.pool.lend(self.version, pin=self.config.pin, avoid=todo.failed_on) as loan:
                self.answers.append(await self._ask(todo, loan.engine))
        except EngineRefusedError as error:
            self._give_up(str(error), 1)
            return True
        except EngineError as error:
            self.last_fault, todo.failed_on = str(error), (error.engine,)
            todo.tries += not isinstance(error, GenerationAbortedError)
            if todo.tries >= MOST_TRIES:
                self._give_up(f"failed {todo.tries} times, at last with: {error}", 1)
                return True
        else:
            return True
        await asyncio.sleep(min(FIRST_PAUSE_S * 2 ** (todo.tries - 1), LONGEST_PAUSE_S))
        self._todo.append(todo)
        return False

    async def _ask(self, todo: Todo, engine: Engine) -> Answer:
        answer = await self.questions.answer(todo.prompt, todo.sample, engine, self.pool.version_of)
        foreign = [part.version for part in answer.version_tokens if not self._may_be_made_by(part.version)]
        if foreign:
            # It was started anew, or updated by somebody else: the answer is not of the version that is measured.
            served = foreign[0] or "weights that are none of the run's"
            raise EngineUnavailableError(engine.name, "generate", f"it serves {served}, not {self.version}")
        return answer

    def _may_be_made_by(self, version: PolicyVersion | None) -> bool:
        if version is None or self.config.pin:
            return version == self.version
        return (version.attempt, version.number) >= (self.version.attempt, self.version.number)

    def _give_up(self, why: str, count: int) -> None:
        log.warning("eval %s of version %s gives up %d answers: %s", self.config.name, self.version, count, why)
        self.given_up[why] = self.given_up.get(why, 0) + count
