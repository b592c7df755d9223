"""How an eval ended: put together, written down, told."""

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import replace

from dataserver.errors import UnavailableError
from dataserver.sinks import Sink
from dataserver.weight_sync import PolicyVersion
from orchestrator.evals.book import Book, Running
from orchestrator.evals.figures import eval_figures
from orchestrator.evals.schedule import Due, Measurement
from orchestrator.results import Answer, EvalResult, EvalState, ResultsTable
from orchestrator.results.export import plain_result
from orchestrator.results.records import summed

log = logging.getLogger(__name__)

# While the database is out of reach: until it is asked again.
RETRY_S = 2.0


def result_of(book: Book, measured: Measurement, running: Running, *, seconds: float, fault: str) -> EvalResult:
    """What the eval came to: `done` if every answer is there, else `failed` with the figures of those that are."""
    sampler = running.sampler
    detail = "; ".join(part for part in (fault, sampler.detail) if part)
    whole = not detail and len(sampler.answers) == sampler.samples
    return EvalResult(
        run=book.run,
        run_uid=book.uid,
        name=measured.name,
        version=measured.version,
        due=running.due,
        state=EvalState.DONE if whole else EvalState.FAILED,
        samples=sampler.samples,
        scored=len(sampler.answers),
        figures=eval_figures(
            sampler.answers, samples=sampler.config.samples, binary=sampler.questions.binary, seconds=seconds
        ),
        version_tokens=summed(part for answer in sampler.answers for part in answer.version_tokens),
        create_time=running.create_time,
        end_time=time.time(),
        detail=detail,
    )


def missed_result(book: Book, due: Due, last: PolicyVersion, samples: int, *, at_end: bool) -> EvalResult:
    """The eval that nothing can measure any more, after the end of the run.

    `at_end`: whether it asks for the run's last version.
    """
    why = f"version {due.number} was due, and the run ended before weights of it, or of a later one, landed"
    way_out = "" if at_end else "; with eval_at_end = true the run's last version would have been measured for it"
    return EvalResult(
        run=book.run,
        run_uid=book.uid,
        name=due.name,
        version=last,
        due=due.number,
        state=EvalState.MISSED,
        samples=samples,
        scored=0,
        figures={},
        version_tokens=(),
        create_time=book.since(due.name),
        end_time=time.time(),
        detail=why + way_out,
    )


class Recorder:
    """Writes results into the table and wherever else figures go."""

    def __init__(self, book: Book, table: ResultsTable, sinks: Sequence[Sink]) -> None:
        self._book = book
        self._table = table
        self._sinks = sinks

    async def record(self, result: EvalResult, answers: Sequence[Answer]) -> None:
        """Write a result, however long the database is out of reach; then tell all who care.

        What the database refuses for good is told as failed, and due again for the next orchestrator.
        """
        try:
            stands = await self._write(result, answers)
        except Exception as error:
            log.exception("eval %s could not be written", result.eval_id)
            told = f"it could not be written: {type(error).__name__}: {error}"
            detail = "; ".join(part for part in (result.detail, told) if part)
            stands = replace(result, state=EvalState.FAILED, detail=detail)
        self._book.finished[Measurement(name=result.name, version=result.version)] = stands
        log.info("eval %s is %s: %s", stands.eval_id, stands.state.value, stands.detail or dict(stands.figures))
        scalars = {f"eval/{stands.name}/{name}": value for name, value in stands.figures.items()}
        for sink in self._sinks:
            try:
                sink.write(stands.version.number, plain_result(stands), scalars)
            except Exception:
                log.exception("figures of eval %s could not be told to %s", stands.eval_id, type(sink).__name__)

    async def _write(self, result: EvalResult, answers: Sequence[Answer]) -> EvalResult:
        while True:
            try:
                return await asyncio.to_thread(self._table.record, result, answers)
            except UnavailableError as error:
                log.warning("eval %s waits to be written: %s", result.eval_id, error)
                await asyncio.sleep(RETRY_S)
