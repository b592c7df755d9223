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
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

from dataserver.config import ServerConfig
from dataserver.errors import DataServerError, InternalError, PreconditionError, StaleAttemptError, UnavailableError
from dataserver.ledger.interface import Ledger, Run
from dataserver.ledger.steps import Progress
from dataserver.streaming.attempts import LiveAttempt
from dataserver.streaming.contexts import RunContext, RunContexts
from dataserver.streaming.metrics import Metrics
from dataserver.streaming.opening import Opening
from dataserver.streaming.threads import Threads

log = logging.getLogger(__name__)

# Leases are renewed three times before they lapse.
RENEWALS_PER_LEASE = 3

# Pause between tries at telling the ledger that a stream is gone.
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
        self._live: dict[tuple[str, str], LiveAttempt] = {}
        self._sessions: dict[tuple[str, str, int], Session] = {}
        self._stream_ids: dict[Session, str] = {}
        self._readers: set[Session] = set()
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
        stream_id = secrets.token_hex(16)
        run = await self._note_open(stream_id, opening)
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
        """Count a stream that `open` let in out again, here and in the ledger."""
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

    def release_soon(self, live: LiveAttempt, world_rank: int, session: Session) -> None:
        """`release` in the background, for a stream that was cancelled and may not wait."""
        self._spawn(self.release(live, world_rank, session))

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
                max_steps_ahead=self._config.max_steps_ahead,
            )
            self._live[(run.uid, opening.attempt_id)] = live
        live.local_ranks[opening.world_rank] = opening.dp_rank
        live.pacing.update(Progress(attempt=opening.key, sealed_step=run.sealed_step, acked_steps=run.acked_steps))
        return live

    async def _note_open(self, stream_id: str, opening: Opening) -> Run:
        """Tell the ledger of a stream. One that is left meanwhile, or whose answer is lost, is closed again."""
        noting = asyncio.ensure_future(
            self._threads.ledger(
                self._ledger.open_stream,
                opening.run,
                attempt=opening.key,
                world_rank=opening.world_rank,
                dp_rank=opening.dp_rank,
                next_step=opening.next_step,
                stream_id=stream_id,
            )
        )
        try:
            return await asyncio.shield(noting)
        except asyncio.CancelledError:
            self._spawn(self._undo_open(noting, stream_id))
            raise
        except UnavailableError:
            self._spawn(self._persist(lambda: self._note_close(stream_id)))
            raise

    async def _undo_open(self, noting: "asyncio.Future[Run]", stream_id: str) -> None:
        try:
            await noting
        except UnavailableError:
            pass
        except DataServerError:
            return
        await self._persist(lambda: self._note_close(stream_id))

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
                await self._note_close(stream_id)

        try:
            await tell()
        except UnavailableError as error:
            log.warning("telling the ledger that a stream is gone is tried again: %s", error.message)
            self._spawn(self._persist(tell))

    async def _note_close(self, stream_id: str) -> None:
        try:
            await self._threads.ledger(self._ledger.close_stream, stream_id)
        except UnavailableError:
            raise
        except DataServerError as error:
            log.warning("closing a stream in the ledger failed, its lease will lapse: %s", error.message)

    async def _persist(self, call: Callable[[], Awaitable[None]]) -> None:
        """Make a call that the ledger must hear of, until it does or the stream's lease has lapsed by itself."""
        until = time.monotonic() + self._config.lease_s
        while True:
            try:
                await call()
            except UnavailableError as error:
                if time.monotonic() > until:
                    log.warning("the ledger was not told that a stream is gone; its lease lapsed: %s", error.message)
                    return
                await asyncio.sleep(RELEASE_PAUSE_S)
            else:
                return

    async def _renew_leases(self) -> None:
        while True:
            await asyncio.sleep(self._config.lease_s / RENEWALS_PER_LEASE)
            held = tuple(self._stream_ids.values())
            if not held:
                continue
            try:
                await self._threads.ledger(self._ledger.renew_leases, held)
            except Exception:
                log.exception("renewing the leases of %d streams failed; it is tried again", len(held))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
