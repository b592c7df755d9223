"""Which engine serves which weights, who may use it, and who may update it.

    UNSEEN ──healthy──> READY <──landed / untouched── SYNCING
      │                 │  ^ └────────take───────────────^ │
      └─no answer─> AWAY┘  └──fresh── RESTARTING <──torn───┘

An engine is **eligible** when it is READY and its version is the newest that landed and survives. So one that comes
late, comes back with old weights, or missed a transfer gets no work until it is synced.

A **pin** keeps an engine at its version: nobody updates it until the last pin on it is gone. Loans are granted in the
moment in which a version lands, before anybody can take the engine for the next transfer; so ask for a pinned loan
*before* its version lands.

Nothing here talks to an engine: `keeper` looks how they are, `coordinator` moves weights.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager

from dataserver.weight_sync import PolicyVersion, SyncOutcome, SyncState
from orchestrator.engines.interface import Engine
from orchestrator.labels import sync_of
from orchestrator.members import EngineLoan, Member, MemberState, Waiter


class Pool:
    """All engines. Of one event loop; nothing here waits but `lend` and `idle`."""

    def __init__(self, engines: Sequence[Engine], *, changed: Callable[[], None] = lambda: None) -> None:
        self.members = tuple(Member(engine) for engine in engines)
        self.moving = False
        self._changed = changed
        self._waiters: list[Waiter] = []
        # Syncs that landed a version that survives; of those that landed here, the attempt that sent them.
        self._landed: dict[str, PolicyVersion] = {}
        self._sender: dict[str, int] = {}
        self._attempt = 0
        self._newest: PolicyVersion | None = None
        self._given_back = asyncio.Event()

    # For evals

    @asynccontextmanager
    async def lend(
        self, version: PolicyVersion | None = None, *, pin: bool = False, avoid: Collection[str] = ()
    ) -> AsyncIterator[EngineLoan]:
        """Wait for an engine and use it until the end of the block; the least busy one first.

        Engines whose names are in `avoid` come last: one that just failed is free at once, and would be taken again.

        Without `pin` the engine serves the newest version that landed, and later may serve newer ones; with `version`
        the wait lasts until that one, or a newer, has landed. With `pin` it serves exactly `version` until the end.
        A loan may carry one sample or many. Waits for ever: bound it, or cancel it.
        """
        if pin and version is None:
            raise ValueError("a pinned loan names its version")
        waiter = Waiter(version=version, pin=pin, avoid=avoid)
        self._waiters.append(waiter)
        self._grant()
        try:
            member = await waiter.granted
        except asyncio.CancelledError:
            self._withdraw(waiter)
            raise
        try:
            serves = version if pin and version is not None else member.version or self._newest
            if serves is None:
                raise RuntimeError(f"engine {member.name} was lent without a version")
            yield EngineLoan(engine=member.engine, version=serves)
        finally:
            self._give_back(member, waiter)

    @property
    def newest(self) -> PolicyVersion | None:
        """The newest version that landed and survives; None before the first."""
        return self._newest

    def serving(self, version: PolicyVersion) -> bool:
        """Whether an engine serves that version now, or did when its transfer began."""
        return any(
            member.version == version
            for member in self.members
            if member.state in {MemberState.READY, MemberState.SYNCING}
        )

    def version_of(self, label: str | None) -> PolicyVersion | None:
        """The version that engines with that label serve; None where no sync of this run, that survives, gave it."""
        return self._landed.get(sync_of(label) or "")

    # For transfers

    def present(self) -> list[Member]:
        """Engines that are healthy and whole."""
        return [member for member in self.members if member.state is MemberState.READY]

    def free(self) -> list[Member]:
        """Those of them that nobody pinned."""
        return [member for member in self.present() if not member.pins]

    def stale(self) -> list[Member]:
        """Those of them that get no work until they are synced."""
        return [member for member in self.free() if not self._is_eligible(member)]

    def expect(self, *, weights: bool) -> None:
        """Note whether weights are on their way to engines; those may serve meanwhile."""
        self.moving = weights
        self._changed()

    def take(self, member: Member) -> bool:
        """Take an engine for a transfer, if it is free."""
        if member not in self.free():
            return False
        self._move(member, MemberState.SYNCING)
        return True

    def land(self, member: Member, version: PolicyVersion, sync_id: str, *, attempt: int) -> None:
        """The engine serves `version` now, which `attempt` sent: the one that made it, or a later one that began there.

        What an attempt before the run's sent may be dropped: its engine is stale until the ledger says that it landed.
        """
        if attempt >= self._attempt:
            self._landed[sync_id], self._sender[sync_id] = version, attempt
            if self._newest is None or version.number >= self._newest.number:
                self._newest = version
        member.sync_id, member.version = sync_id, self._landed.get(sync_id)
        self._move(member, MemberState.READY)
        self._grant()

    async def idle(self, member: Member) -> None:
        """Wait until nobody has an engine on loan that is taken for a transfer."""
        while member.loans:
            self._given_back.clear()
            await self._given_back.wait()

    def untouched(self, member: Member) -> None:
        """The transfer never reached the engine's weights; it goes on as it was."""
        self._move(member, MemberState.READY)
        self._grant()

    # For the keeper

    def see(self, member: Member, label: str | None, workers: int) -> None:
        """The engine is healthy and whole, and has that label. One that no landed sync of this run gave is stale."""
        sync_id = sync_of(label)
        if (member.state, member.sync_id, member.workers) == (MemberState.READY, sync_id, workers):
            return
        member.sync_id, member.workers, member.detail = sync_id, workers, ""
        member.version = self.version_of(label)
        self._move(member, MemberState.READY)
        self._grant()

    def lose(self, member: Member, detail: str) -> None:
        """The engine does not answer."""
        member.detail = detail
        self._move(member, MemberState.AWAY)

    def tear(self, member: Member, detail: str) -> None:
        """The engine may hold a mix: it has to be started anew, and serves nothing before."""
        member.sync_id, member.version, member.detail = None, None, detail
        self._move(member, MemberState.RESTARTING)

    def note(self, state: SyncState) -> None:
        """Learn from the ledger which versions landed and survive.

        What landed here and is not in the ledger yet counts until the ledger knows of a later attempt than sent it.
        """
        landed = {sync.sync_id: sync.version for sync in state.syncs if sync.outcome is SyncOutcome.LANDED}
        if state.attempt != self._attempt:
            self._sender = {sync_id: sent for sync_id, sent in self._sender.items() if sent >= state.attempt}
            self._landed = {sync_id: self._landed[sync_id] for sync_id in self._sender}
        self._landed = landed | self._landed
        self._attempt = state.attempt
        versions = [*self._landed.values(), *([state.landed] if state.landed else [])]
        newest = max(versions, key=lambda version: (version.number, version.attempt), default=None)
        known = [self._landed.get(member.sync_id or "") for member in self.members]
        # Only what is new is told: whoever is told looks at the ledger's state again.
        if (newest, known) != (self._newest, [member.version for member in self.members]):
            self._newest = newest
            for member, version in zip(self.members, known, strict=True):
                member.version = version
            self._changed()
            self._grant()

    def forget(self) -> None:
        """Know nothing of any engine: others may have moved them."""
        for member in self.members:
            member.sync_id = member.version = None
            self._move(member, MemberState.UNSEEN)

    # Inside

    def _is_eligible(self, member: Member) -> bool:
        return member.state is MemberState.READY and member.version is not None and member.version == self._newest

    def _fits(self, member: Member, waiter: Waiter) -> bool:
        if waiter.pin:
            return member.state is MemberState.READY and member.version == waiter.version
        return self._is_eligible(member) and (
            waiter.version is None or (member.version is not None and member.version.number >= waiter.version.number)
        )

    def _grant(self) -> None:
        """Give engines to those who wait for what they serve, in the order in which they came."""
        granted = False
        for waiter in list(self._waiters):
            fitting = [member for member in self.members if self._fits(member, waiter)]
            if not fitting or waiter.granted.done():
                continue
            member = min(fitting, key=lambda member: (member.name in waiter.avoid, member.loans))
            member.loans += 1
            member.pins += waiter.pin
            self._waiters.remove(waiter)
            waiter.granted.set_result(member)
            granted = True
        if granted:
            self._changed()

    def _withdraw(self, waiter: Waiter) -> None:
        if waiter in self._waiters:
            self._waiters.remove(waiter)
        elif waiter.granted.done() and not waiter.granted.cancelled():
            self._give_back(waiter.granted.result(), waiter)

    def _give_back(self, member: Member, waiter: Waiter) -> None:
        member.loans -= 1
        member.pins -= waiter.pin
        self._given_back.set()
        self._changed()

    def _move(self, member: Member, state: MemberState) -> None:
        member.state = state
        member.turn += 1
        self._changed()
