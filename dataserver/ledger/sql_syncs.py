# ruff: noqa: D102 - what each method does stands in `SyncLedger`
"""The part of the ledger on a database that is about syncs: one transaction a method."""

from collections.abc import Mapping

from sqlalchemy import Connection

from dataserver.database import Database
from dataserver.ledger import arguments, offers, reports, runs, sync_arguments, syncs, wishes
from dataserver.ledger.rules import attempts as attempt_rules
from dataserver.ledger.steps import AttemptKey, ProposedSeal, Seal
from dataserver.weight_sync import Hold, Offer, OrchestratorLease, ShutdownHold, SyncAnswer, SyncState, WeightSync


class SqlSyncs:
    """`SyncLedger` in one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def request_sync(self, name: str, version: int | None, *, at_or_after: bool = False) -> SyncAnswer:
        if version is not None:
            arguments.check_number("version", version, 0)

        def work(connection: Connection) -> SyncAnswer:
            run = runs.lock_by_name(connection, name)
            return syncs.request(connection, run, version, at_or_after=at_or_after, now=self._now(connection))

        return self._database.write(work)

    def hold_sync(self, name: str, hold_id: str, ttl_s: float) -> Hold:
        sync_arguments.check_hold(hold_id, ttl_s)

        def work(connection: Connection) -> Hold:
            now = self._now(connection)
            return wishes.hold(connection, runs.lock_by_name(connection, name), hold_id, now + ttl_s, now)

        return self._database.write(work)

    def release_sync(self, name: str, hold_id: str) -> None:
        arguments.check_label("hold_id", hold_id, arguments.MAX_NAME_LENGTH)
        self._database.write(lambda c: wishes.release(c, runs.lock_by_name(c, name), hold_id))

    def report_sync(self, name: str, sync: WeightSync) -> WeightSync:
        sync_arguments.check_report(sync)
        return self._database.write(lambda c: reports.report(c, runs.lock_by_name(c, name), sync, self._now(c)))

    def sync_state(self, name: str) -> SyncState:
        return self._database.read(lambda c: syncs.state(c, runs.read_by_name(c, name), self._now(c)))

    def lease_orchestrator(self, name: str, holder: str, address: str, ttl_s: float) -> OrchestratorLease:
        sync_arguments.check_lease(holder, address, ttl_s)

        def work(connection: Connection) -> OrchestratorLease:
            run, now = runs.lock_by_name(connection, name), self._now(connection)
            return wishes.lease(connection, run, holder, address, expire_time=now + ttl_s, now=now)

        return self._database.write(work)

    def release_orchestrator(self, name: str, holder: str) -> None:
        arguments.check_label("holder", holder, arguments.MAX_NAME_LENGTH)
        self._database.write(
            lambda c: wishes.release_lease(c, runs.lock_by_name(c, name), holder, self._now(c)),
        )

    def get_offer(self, run_uid: str, attempt: AttemptKey, number: int) -> Offer | None:
        def work(connection: Connection) -> Offer | None:
            run = runs.read_by_uid(connection, run_uid)
            attempt_rules.refuse_stale_attempt(run, attempt)
            return offers.read(connection, run, number)

        return self._database.read(work)

    def ack_offers(self, run_uid: str, attempt: AttemptKey, acks: Mapping[int, int]) -> None:
        self._database.note(lambda c: offers.record_acks(c, runs.lock_by_uid(c, run_uid), attempt, acks))

    def conclude(
        self, run_uid: str, attempt: AttemptKey, end: ProposedSeal, *, after: int, hold_s: float
    ) -> Offer | Seal | ShutdownHold:
        arguments.check_seal(end)

        def work(connection: Connection) -> Offer | Seal | ShutdownHold:
            run, now = runs.lock_by_uid(connection, run_uid), self._now(connection)
            return offers.conclude(connection, run, attempt, end, after=after, hold_s=hold_s, now=now)

        return self._database.write(work)

    def _now(self, connection: Connection) -> float:
        return self._database.clock(connection)
