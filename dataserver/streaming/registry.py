"""All attempts that this process serves, who streams for which rank, and their leases.

A rank has one stream. A newer open of the same rank wins, since the older stream may be half-open after a broken
connection; but only once the ledger accepted it, so that a wrong open ends nobody's stream. Each stream has an id of
its own in the ledger. This process renews the leases of exactly the streams that it holds, and closes each that ends,
which frees the rank with its last one; except while this server drains: then the lease stays, for the server that the
rank turns to next. A close that does not get through costs one lease: what nobody renews lapses.
"""

import asyncio
import logging
import secrets
from typing import Protocol

from dataserver.config import ServerConfig
from dataserver.errors import DataServerError, InternalError, PreconditionError, StaleAttemptError, UnavailableError
from dataserver.ledger.interface import Ledger, Run
from dataserver.ledger.steps import Progress
from dataserver.streaming.attempts import LiveAttempt
from dataserver.streaming.contexts import RunContext, RunContexts
from dataserver.streaming.leases import Leases
from dataserver.streaming.metrics import Metrics
from dataserver.streaming.opening import Opening
from dataserver.streaming.threads import Threads
from dataserver.streaming.waits import Waits

log = logging.getLogger(__name__)


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
        waits: Waits,
    ) -> None:
        self.server_id = server_id
        self._config = config
        self._ledger = ledger
        self._threads = threads
        self._contexts = contexts
        self._metrics = metrics
        self._waits = waits
        self._live: dict[tuple[str, str], LiveAttempt] = {}
        self._sessions: dict[tuple[str, str, int], Session] = {}
        self._stream_ids: dict[Session, str] = {}
        self._readers: set[Session] = set()
        self._draining: DataServerError | None = None
        self._leases = Leases(self._stream_ids.values, ledger=ledger, threads=threads, lease_s=config.lease_s)

    def start(self) -> None:
        """Begin to renew leases."""
        self._leases.start()

    async def open(self, opening: Opening, session: Session) -> LiveAttempt:
        """Seat `session` for its rank. Raises what the ledger says about the open, or about the run's stores."""
        self.refuse_while_draining()
        run = await self._threads.ledger(self._ledger.get_run, opening.run)
        context = await self._contexts.of_run(run)
        stream_id = secrets.token_hex(16)
        run = await self._leases.open(stream_id, opening)
        self.refuse_while_draining()
        live = self._enter(run, opening, context)
        key = (run.uid, opening.attempt_id, opening.world_rank)
        older = self._sessions.get(key)
        if older is not None:
            older.end(PreconditionError(f"world rank {opening.world_rank} opened another stream; this one is over"))
        self._sessions[key] = session
        self._stream_ids[session] = stream_id
        return live

    async def release(self, live: LiveAttempt, world_rank: int, session: Session) -> None:
        """Count a stream that `open` let in out again, here and in the ledger; to the end even if this is cancelled."""
        await asyncio.shield(self._leases.spawn(self._release(live, world_rank, session)))

    def seat_reader(self, session: Session) -> None:
        """Take in a stream of no attempt, which ends only with this server."""
        self._readers.add(session)

    def unseat_reader(self, session: Session) -> None:
        """Let it go. Idempotent."""
        self._readers.discard(session)

    def supersede(self, run_uid: str, attempt: int, why: str) -> None:
        """End the streams of all attempts below `attempt` at once; other servers notice by their polls."""
        for (uid, _), live in self._live.items():
            number = live.attempt.number
            if uid == run_uid and number < attempt:
                live.end(StaleAttemptError(f"run {live.run_name!r}: attempt {number} is over: {why}", attempt=attempt))

    def drain(self) -> None:
        """Take no more streams and end those that run. Their clients go elsewhere and keep their leases."""
        if self._draining is None:
            self._draining = UnavailableError("this server is ending; connect again, to it or to another")
        for session in (*self._sessions.values(), *self._readers):
            session.end(self._draining)

    def refuse_while_draining(self) -> None:
        """Raise `UnavailableError` once `drain` was called."""
        if self._draining is not None:
            raise self._draining

    async def close(self) -> None:
        """Stop everything. Idempotent."""
        await self._leases.stop()
        for live in self._live.values():
            live.close()
        self._live.clear()

    def _enter(self, run: Run, opening: Opening, context: RunContext) -> LiveAttempt:
        if run.attempt is None:
            raise InternalError(f"the ledger accepted a stream of run {run.name!r}, which has no attempt")
        self.supersede(run.uid, opening.attempt, f"attempt {opening.attempt} has begun")
        live = self._live.get((run.uid, opening.attempt_id))
        if live is None:
            live = LiveAttempt(
                run,
                run.attempt,
                context,
                contexts=self._contexts,
                ledger=self._ledger,
                threads=self._threads,
                metrics=self._metrics,
                config=self._config,
                waits=self._waits,
            )
            self._live[(run.uid, opening.attempt_id)] = live
        live.local_ranks[opening.world_rank] = opening.dp_rank
        live.pacing.update(Progress(attempt=opening.key, sealed_step=run.sealed_step, acked_steps=run.acked_steps))
        return live

    async def _let_go(self, live: LiveAttempt, stream_id: str) -> None:
        """Tell the ledger the last acks, and that the stream is gone; in the background once it does not answer."""

        async def tell() -> None:
            try:
                await live.flush_acks()
            except UnavailableError:
                raise
            except DataServerError as error:
                log.info("run %s attempt %d: last acks: %s", live.run_name, live.attempt.number, error.message)
            if self._draining is None:
                await self._leases.close(stream_id)

        try:
            await tell()
        except UnavailableError as error:
            log.warning("telling the ledger that a stream is gone is tried again: %s", error.message)
            self._leases.spawn(self._leases.persist(tell))

    async def _release(self, live: LiveAttempt, world_rank: int, session: Session) -> None:
        stream_id = self._stream_ids.pop(session)
        try:
            await self._let_go(live, stream_id)
        finally:
            key = (live.run_uid, live.attempt.attempt_id, world_rank)
            if self._sessions.get(key) is session:
                del self._sessions[key]
                live.local_ranks.pop(world_rank, None)
            if not live.local_ranks and self._live.get(key[:2]) is live:
                del self._live[key[:2]]
                live.close()
