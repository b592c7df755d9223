"""Which transfers take place, and what calls that come twice or late are told.

One transfer at a time. Those that are over are remembered, so that a prepare that was delayed past its abort begins
nothing, and a commit that is repeated gets the answer that it got.

A coordinator belongs to one epoch of the orchestrator's lease: it is closed when the lease ends, and then calls no
engine any more.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator

from dataserver.errors import InvalidRequestError, PreconditionError
from dataserver.weight_sync import WeightSync
from orchestrator.config import TransfersConfig
from orchestrator.members import Member
from orchestrator.pool import Pool
from orchestrator.transfers.party import Party
from orchestrator.transfers.transfer import Phase, Transfer
from orchestrator.transfers.values import CurrentAttempt, EngineOutcome, PrepareRequest, Ready, RefusalReason, Refused

log = logging.getLogger(__name__)

# Calls are delayed by seconds, syncs are seconds apart: so many reach far enough back.
REMEMBERED = 256


class Coordinator:
    """Takes part in the transfers of one run, for one epoch of the lease.

    `attempt`: the run's current one, asked for anew if its id differs from the trainer's. `displaced`:
    whether the run is known to have left an attempt that was its current one. `restart`: has an engine started anew, in
    the background. `tell_trainer`, `report`: as in `Transfer`.
    """

    def __init__(
        self,
        *,
        run: str,
        epoch: int,
        pool: Pool,
        config: TransfersConfig,
        attempt: Callable[[str], Awaitable[CurrentAttempt]],
        displaced: Callable[[str], bool],
        restart: Callable[[Member, str], None],
        tell_trainer: Callable[[PrepareRequest, str], Awaitable[None]],
        report: Callable[[WeightSync], None],
    ) -> None:
        self._run = run
        self._epoch = epoch
        self._pool = pool
        self._config = config
        self._attempt = attempt
        self._displaced = displaced
        self._restart = restart
        self._tell_trainer = tell_trainer
        self._report = report
        self._transfers: OrderedDict[str, Transfer | None] = OrderedDict()
        self._current: Transfer | None = None
        self._task: asyncio.Task[None] | None = None
        self._draining = False
        self._closed = False

    @property
    def current(self) -> Transfer | None:
        """The transfer under way."""
        return self._current

    async def prepare(self, request: PrepareRequest) -> Ready | Refused:
        """Begin a transfer, or say why not. Never waits for a pin."""
        attempt = await self._attempt(request.attempt_id)
        known = self._under_way(request.sync_id)
        if known is not None:
            return await known.answer()
        refused = self._objection(request, attempt.attempt_id)
        if refused is None:
            return await self._begin(request, attempt.number).answer()
        log.info("prepare of version %s refused: %s: %s", request.version, refused.reason.value, refused.detail)
        # The trainer goes on: the same prepare, delivered once more, must not begin what nobody will end.
        if request.sync_id not in self._transfers:
            self._remember(request.sync_id, None)
        return refused

    async def commit(self, sync_id: str, checksum: str) -> tuple[EngineOutcome, ...]:
        """What became of the transfer on each engine; raises `PreconditionError` for one that is not known here."""
        transfer = self._transfers.get(sync_id)
        if transfer is None or transfer.phase is Phase.PREPARING:
            raise PreconditionError(
                f"sync {sync_id}: this orchestrator did not get engines ready for it, or was asked to give it up "
                "before it began: nothing has landed"
            )
        return await transfer.commit(checksum)

    async def abort(self, sync_id: str, reason: str) -> None:
        """Give a transfer up. One that was never prepared cannot be prepared any more."""
        if not sync_id:
            raise InvalidRequestError("sync_id is empty: name the transfer")
        transfer = self._transfers.get(sync_id)
        if transfer is not None:
            await transfer.abort(reason)
        elif sync_id not in self._transfers:
            self._remember(sync_id, None)

    async def end_displaced(self) -> None:
        """Give up the transfer under way if another attempt of the run began: nobody will commit it."""
        transfer = self._current
        if transfer is not None and self._displaced(transfer.request.attempt_id):
            await transfer.abort("another attempt of the run began")

    def drain(self) -> None:
        """Begin no more transfers."""
        self._draining = True

    async def idle(self) -> None:
        """Wait for the end of the transfer under way."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def close(self) -> None:
        """Call no engine any more. Idempotent."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    # Inside

    def _under_way(self, sync_id: str) -> Transfer | None:
        known = self._transfers.get(sync_id)
        return None if known is None or known.phase is Phase.OVER else known

    def _objection(self, request: PrepareRequest, attempt_id: str) -> Refused | None:
        """Why a prepare that is no repetition cannot take place; `attempt_id`: that of the run's attempt."""
        return next((Refused(reason=reason, detail=why) for reason, why in self._objections(request, attempt_id)), None)

    def _objections(self, request: PrepareRequest, attempt_id: str) -> Iterator[tuple[RefusalReason, str]]:
        if request.run != self._run:
            yield RefusalReason.MISMATCH, f"this is the orchestrator of run {self._run!r}, not of {request.run!r}"
        if request.epoch != self._epoch or self._closed:
            ours = "'s lease ended" if self._closed else f" has epoch {self._epoch}"
            yield RefusalReason.STALE, f"epoch {request.epoch} is over: this orchestrator{ours}"
        if request.sync_id in self._transfers:
            yield RefusalReason.STALE, f"sync {request.sync_id} is over"
        if request.attempt_id != attempt_id:
            yield RefusalReason.STALE, f"attempt {request.attempt_id} is over; the run's is {attempt_id or 'none'}"
        ours, theirs = self._config.transport.value, request.transport.value
        if ours != theirs:
            yield (
                RefusalReason.TRANSPORT,
                f"weights.transport is {theirs!r} at the trainer and {ours!r} at the orchestrator: make them equal",
            )
        if self._draining:
            yield RefusalReason.UNWANTED, "the orchestrator ends"
        if self._current is not None:
            yield RefusalReason.BUSY, f"sync {self._current.request.sync_id} is {self._current.phase.value}"
        if not self._pool.present():
            yield RefusalReason.NO_ENGINE, "; ".join(map(str, self._pool.members)) or "no engine is configured"
        if not self._pool.free():
            yield RefusalReason.PINNED, "every engine is pinned to its version by an eval"

    def _begin(self, request: PrepareRequest, attempt: int) -> Transfer:
        parties = [Party(self._pool, member, self._restart) for member in self._pool.free()]
        self._current = transfer = Transfer(
            request,
            parties,
            self._config,
            attempt=attempt,
            displaced=lambda: self._displaced(request.attempt_id),
            tell_trainer=self._tell_trainer,
            report=self._report,
        )
        self._remember(request.sync_id, transfer)
        self._pool.expect(weights=True)
        self._task = asyncio.create_task(self._drive(transfer), name=f"transfer {request.sync_id}")
        return transfer

    async def _drive(self, transfer: Transfer) -> None:
        try:
            await transfer.drive()
        except Exception:
            log.exception("sync %s ended by a fault of the orchestrator's own", transfer.request.sync_id)
        finally:
            self._current = None
            self._pool.expect(weights=False)

    def _remember(self, sync_id: str, transfer: Transfer | None) -> None:
        self._transfers[sync_id] = transfer
        while len(self._transfers) > REMEMBERED:
            self._transfers.popitem(last=False)
