"""A ledger of one run in memory, by the rules of syncs, for loops that warp; and a data server without threads."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from dataserver.errors import PreconditionError, UnavailableError
from dataserver.weight_sync import (
    Hold,
    OrchestratorAddress,
    OrchestratorLease,
    PolicyVersion,
    RequestOutcome,
    SyncAnswer,
    SyncOutcome,
    SyncState,
    WeightSync,
)
from orchestrator.data_server import DataServer


@dataclass(eq=False)
class FakeLedger:
    """Requests, holds, reports and the lease of one attempt. `away`: no call is answered; `lost`: answers are."""

    max_steps: int = 10
    attempt: int = 1
    sealed: int = 0
    consumed: int = 0
    ended: bool = False
    away: bool = False
    lost: bool = False
    requested: set[int] = field(default_factory=set)
    last: bool = False
    holds: dict[str, float] = field(default_factory=dict)
    landed: dict[int, WeightSync] = field(default_factory=dict)
    reports: list[WeightSync] = field(default_factory=list)
    lease: OrchestratorLease | None = None
    epoch: int = 0
    calls: list[str] = field(default_factory=list)
    changed: Callable[[SyncState], None] = lambda _state: None

    @property
    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def stamp(self, number: int) -> OrchestratorAddress | None:
        """Seal the step that yields `number`: whom to hand its weights over by, if anybody wants them."""
        self.sealed = max(self.sealed, number)
        holds = any(until > self.now for until in self.holds.values())
        wanted = holds or number in self.requested or (self.last and number == self.max_steps)
        alive = self.lease is not None and self.lease.expire_time > self.now
        self.changed(self.sync_state("chat"))
        return self.lease.orchestrator if self.lease is not None and wanted and alive else None

    def ack(self, number: int) -> None:
        self.consumed = number
        self.changed(self.sync_state("chat"))

    # The calls

    def request_sync(self, _run: str, version: int | None, *, at_or_after: bool = False) -> SyncAnswer:
        self.calls.append(f"request {version}")
        if version is None:
            self.last = self.max_steps not in self.landed
        elif version in self.landed:
            return SyncAnswer(outcome=RequestOutcome.LANDED, version=version)
        elif version <= self.sealed and version > 0:
            return SyncAnswer(outcome=RequestOutcome.ALREADY_SEALED, version=self.sealed + 1)
        else:
            self.requested.add(version)
        return SyncAnswer(outcome=RequestOutcome.ACCEPTED, version=version)

    def hold_sync(self, _run: str, hold_id: str, ttl_s: float) -> Hold:
        self.calls.append("hold")
        self.holds[hold_id] = self.now + ttl_s
        return Hold(hold_id=hold_id, expire_time=self.holds[hold_id])

    def release_sync(self, _run: str, hold_id: str) -> None:
        self.calls.append("release")
        self.holds.pop(hold_id, None)

    def report_sync(self, _run: str, sync: WeightSync) -> WeightSync:
        self.calls.append("report")
        self.reports.append(sync)
        if sync.outcome is SyncOutcome.LANDED:
            self.landed[sync.version.number] = sync
            self.requested.discard(sync.version.number)
            self.last = self.last and sync.version.number < self.max_steps
        self.changed(self.sync_state("chat"))
        return sync

    def sync_state(self, run: str) -> SyncState:
        return SyncState(
            run=run,
            attempt=self.attempt,
            sealed_step=self.sealed,
            consumed_step=self.consumed,
            requested=tuple(sorted(self.requested)),
            last_requested=self.last,
            last_sealed=self.sealed >= self.max_steps,
            ended=self.ended,
            shutdown_deadline=None,
            holds=tuple(Hold(hold_id=name, expire_time=until) for name, until in self.holds.items()),
            lease=self.lease,
            landed=PolicyVersion(attempt=1, number=max(self.landed)) if self.landed else None,
            syncs=tuple(reversed(self.reports)),
            max_steps=self.max_steps,
        )

    def watch_sync_state(self, run: str) -> Iterator[SyncState]:
        yield self.sync_state(run)

    def lease_orchestrator(self, _run: str, holder: str, address: str, ttl_s: float) -> OrchestratorLease:
        if self.lease is not None and self.lease.holder != holder and self.lease.expire_time > self.now:
            raise PreconditionError(f"{self.lease.holder} is the run's orchestrator")
        if self.lease is None or self.lease.holder != holder or self.lease.expire_time <= self.now:
            self.epoch += 1
        orchestrator = OrchestratorAddress(epoch=self.epoch, address=address)
        self.lease = OrchestratorLease(orchestrator=orchestrator, holder=holder, expire_time=self.now + ttl_s)
        return self.lease

    def release_orchestrator(self, _run: str, holder: str) -> None:
        if self.lease is not None and self.lease.holder == holder:
            self.lease = None

    def get_run(self, run: str) -> Any:
        raise NotImplementedError(run)


class NearServer(DataServer):
    """A data server that answers in the same loop, a moment later."""

    def __init__(self, ledger: FakeLedger) -> None:
        self.calls = ledger  # type: ignore[assignment]
        self.ledger = ledger

    async def call(self, method, *arguments, **named):
        await asyncio.sleep(0.01)
        if self.ledger.away:
            raise UnavailableError("the data server is away")
        answer = method(*arguments, **named)
        if self.ledger.lost:
            raise UnavailableError("the answer is lost")
        return answer

    def close(self) -> None:
        """There is nothing to close."""
