"""What evals need for as long as the process lives; each epoch of the lease gets a director of its own."""

import asyncio
import logging
from collections.abc import Callable

from dataserver.client import DataClient
from dataserver.sinks import Sink, open_sinks
from orchestrator.config import OrchestratorConfig
from orchestrator.data_server import PASSING, RETRY_S, DataServer
from orchestrator.evals.config import EvalConfig
from orchestrator.evals.director import EvalDirector
from orchestrator.evals.history import RunHistory, history_of
from orchestrator.evals.loading import load_questions
from orchestrator.evals.questions import Questions
from orchestrator.metrics import Metrics
from orchestrator.pool import Pool
from orchestrator.results import ResultsTable, open_results
from orchestrator.waiting import Waiting

log = logging.getLogger(__name__)


class Evaluation:
    """Questions, results and places for figures. `open` raises what the configuration is refused with."""

    def __init__(self, config: OrchestratorConfig, server: DataServer, client: DataClient, metrics: Metrics) -> None:
        self._config = config
        self._server = server
        self._client = client
        self._evals: list[tuple[EvalConfig, Questions]] = []
        self._results: ResultsTable | None = None
        self._metrics = metrics
        self._sinks: list[Sink] = []

    async def open(self) -> None:
        """Read what is asked, waiting for the data server where that is a store; open the table of results."""
        config = self._config
        if not config.evals:
            return
        for each in config.evals:
            self._evals.append((each, await self._load(each)))
        self._results = await asyncio.to_thread(open_results, config.results.database)
        self._sinks = open_sinks(
            config.metrics, run=f"{config.run.name}-evals", resolved=config.model_dump(mode="json")
        )

    def director(self, pool: Pool, changed: Callable[[], None]) -> EvalDirector:
        """Evals of one epoch; they call `changed` whenever they may want something else."""
        if self._results is None:
            raise RuntimeError("the evaluation is not open")
        return EvalDirector(
            run=self._config.run.name,
            evals=self._evals,
            pool=pool,
            results=self._results,
            history=self._history,
            changed=changed,
            sinks=[*self._sinks, self._metrics],
        )

    def close(self) -> None:
        """Close table and sinks. Idempotent."""
        for sink in self._sinks:
            sink.close()
        self._sinks = []
        if self._results is not None:
            self._results.close()

    async def _load(self, config: EvalConfig) -> Questions:
        waiting = Waiting(f"the prompts of eval {config.name}", log)
        while True:
            try:
                return await asyncio.to_thread(load_questions, config, self._client)
            except PASSING as error:
                waiting.say(error.message)
                await asyncio.sleep(RETRY_S)

    async def _history(self) -> RunHistory:
        calls, run = self._server.calls, self._config.run.name
        shown = await self._server.call(calls.get_run, run)
        return history_of(shown.uid, await self._server.call(calls.list_run_events, run))
