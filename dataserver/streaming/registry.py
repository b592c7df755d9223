"""All attempts that this process serves, who streams for which rank, and their leases.

A rank has one stream. A newer open of the same rank wins, since the older stream may be half-open after a broken
connection; but only once the ledger accepted it, so that a wrong open ends nobody's stream. Every stream that ends is
counted out of the ledger, which frees the rank with its last one; except while this server drains: then the lease
stays, for the server that the rank turns to next.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

from dataserver.config import ServerConfig
from dataserver.errors import DataServerError, InternalError, PreconditionError, StaleAttemptError, UnavailableError
from dataserver.ledger.interface import Ledger, Progress, Run
from dataserver.streaming.attempts import LiveAttempt
from dataserver.streaming.contexts import RunContext, RunContexts
from dataserver.streaming.metrics import Metrics
from dataserver.streaming.opening import Opening
from dataserver.streaming.threads import Threads

log = logging.getLogger(__name__)

# Leases are renewed three times before they lapse.
RENEWALS_PER_LEASE = 3

# Tries at telling the ledger that a stream is gone, and the pause between them.
RELEASE_TRIES = 5
RELEASE_PAUSE_S = 1.0


class Session(Protocol):
    """What the registry knows of a stream."""

    def end(self, error: DataServerError) -> None:
        """End the stream with `error` after the message under way."""


class Registry:
    """Attempts and streams of this process."""

    def __init__(
        self,
        config: ServerConfig,
        *,
        server_id: str,
        ledger: Ledger,
        threads: Threads,
        contexts: RunContexts,
        metrics: Metrics,
    ) -> None:
        self.server_id = server_id
        self._config = config
        self._ledger = ledger
        self._threads = threads
        self._contexts = contexts
        self._metrics = metrics
        self._live: dict[tuple[str, int], LiveAttempt] = {}
        self._sessions: dict[tuple[str, int, int], Session] = {}
        self._draining: DataServerError | None = None
        self._background: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Begin to renew leases."""
        self._spawn(self._renew_leases())

    async def open(self, opening: Opening, session: Session) -> LiveAttempt:
        """Seat `session` for its rank. Raises what the ledger says about the open, or about the run's stores."""
        self.refuse_while_draining()
        run = await self._threads.ledger(self._ledger.get_run, opening.run)
        context = await self._contexts.of_run(run)
        run = await self._note_open(run.uid, opening)
        self.refuse_while_draining()
        live = self._enter(run, opening, context)
        older = self._sessions.get((run.uid, opening.attempt, opening.world_rank))
        if older is not None:
            older.end(PreconditionError(f"world rank {opening.world_rank} opened another stream; this one is over"))
        self._sessions[(run.uid, opening.attempt, opening.world_rank)] = session
        return live

    async def release(self, live: LiveAttempt, world_rank: int, session: Session) -> None:
        """Count a stream that `open` let in out again, here and in the ledger."""
        try:
            await self._let_go(live, world_rank)
        finally:
            key = (live.run_uid, live.attempt.number, world_rank)
            if self._sessions.get(key) is session:
                del self._sessions[key]
                live.local_ranks.discard(world_rank)
            if not live.local_ranks and self._live.get(key[:2]) is live:
                del self._live[key[:2]]
                live.close()

    def release_soon(self, live: LiveAttempt, world_rank: int, session: Session) -> None:
        """`release` in the background, for a stream that was cancelled and may not wait."""
        self._spawn(self.release(live, world_rank, session))

    def supersede(self, run_uid: str, attempt: int, why: str) -> None:
        """End the streams of all attempts below `attempt` at once; other servers notice by their polls."""
        for (uid, number), live in self._live.items():
            if uid == run_uid and number < attempt:
                live.end(StaleAttemptError(f"run {live.run_name!r}: attempt {number} is over: {why}", attempt=attempt))

    def drain(self) -> None:
        """Take no more streams and end those that run. Their clients go elsewhere and keep their leases."""
        if self._draining is None:
            self._draining = UnavailableError("this server is ending; connect again, to it or to another")
        for session in self._sessions.values():
            session.end(self._draining)

    def refuse_while_draining(self) -> None:
        """Raise `UnavailableError` once `drain` was called."""
        if self._draining is not None:
            raise self._draining

    async def close(self) -> None:
        """Stop everything. Idempotent."""
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        for live in self._live.values():
            live.close()
        self._live.clear()

    def _enter(self, run: Run, opening: Opening, context: RunContext) -> LiveAttempt:
        if run.attempt is None:
            raise InternalError(f"the ledger accepted a stream of run {run.name!r}, which has no attempt")
        self.supersede(run.uid, opening.attempt, f"attempt {opening.attempt} has begun")
        live = self._live.get((run.uid, opening.attempt))
        if live is None:
            live = LiveAttempt(
                run,
                run.attempt,
                context,
                ledger=self._ledger,
                threads=self._threads,
                metrics=self._metrics,
                max_steps_ahead=self._config.max_steps_ahead,
            )
            self._live[(run.uid, opening.attempt)] = live
        live.local_ranks.add(opening.world_rank)
        live.pacing.update(Progress(attempt=opening.attempt, sealed_step=run.sealed_step, acked_steps=run.acked_steps))
        return live

    async def _note_open(self, run_uid: str, opening: Opening) -> Run:
        """Tell the ledger of a stream. One that is left meanwhile is counted out again, or its rank is never free."""
        noting = asyncio.ensure_future(
            self._threads.ledger(
                self._ledger.open_stream,
                opening.run,
                attempt=opening.attempt,
                world_rank=opening.world_rank,
                dp_rank=opening.dp_rank,
                next_step=opening.next_step,
                server_id=self.server_id,
            )
        )
        try:
            return await asyncio.shield(noting)
        except asyncio.CancelledError:
            self._spawn(self._undo_open(noting, run_uid, opening))
            raise

    async def _undo_open(self, noting: "asyncio.Future[Run]", run_uid: str, opening: Opening) -> None:
        try:
            await noting
        except DataServerError:
            return
        await self._note_close(run_uid, opening.attempt, opening.world_rank)

    async def _let_go(self, live: LiveAttempt, world_rank: int) -> None:
        """Tell the ledger the last acks, and that the stream is gone."""
        await self._persist(live.flush_acks)
        if self._draining is None:
            await self._note_close(live.run_uid, live.attempt.number, world_rank)

    async def _note_close(self, run_uid: str, attempt: int, world_rank: int) -> None:
        await self._persist(
            lambda: self._threads.ledger(self._ledger.close_stream, run_uid, attempt, world_rank, self.server_id)
        )

    async def _persist(self, call: Callable[[], Awaitable[None]]) -> None:
        """Make a call that the ledger must hear of, in spite of its being away for a while."""
        for _ in range(RELEASE_TRIES):
            try:
                await call()
            except UnavailableError as error:
                log.warning("telling the ledger that a stream is gone: %s", error.message)
                await asyncio.sleep(RELEASE_PAUSE_S)
            except DataServerError:
                # The attempt or its run is gone, and the rank with it.
                return
            else:
                return

    async def _renew_leases(self) -> None:
        while True:
            await asyncio.sleep(self._config.lease_s / RENEWALS_PER_LEASE)
            if not self._sessions:
                continue
            try:
                await self._threads.ledger(self._ledger.renew_leases, self.server_id)
            except Exception:
                log.exception("renewing the leases of %d ranks failed; it is tried again", len(self._sessions))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
