# ruff: noqa: D102 - what each method does stands in `Ledger`
"""The ledger on a database: one transaction a method."""

import secrets
from collections.abc import Callable, Collection, Mapping

from sqlalchemy import Connection

from dataserver.cursor import Cursor
from dataserver.database import Database
from dataserver.ledger import arguments, attempts, commits, events, runs, seals, stages, streams
from dataserver.ledger.database import open_database
from dataserver.ledger.history import Commit, Event
from dataserver.ledger.interface import Attempt, Ledger, Run, RunStage
from dataserver.ledger.records import BeginRequest, OpenRequest, RunRow
from dataserver.ledger.rules import attempts as attempt_rules
from dataserver.ledger.sql_syncs import SqlSyncs
from dataserver.ledger.steps import AttemptKey, Progress, ProposedSeal, Seal
from dataserver.run_spec import MAX_COUNT, BatchSpec, RunSpec


def open_ledger(url: str, *, lease_s: float) -> Ledger:
    """The ledger in the database `url`, created where there is none.

    `sqlite:///PATH` (relative) or `sqlite:////PATH` (absolute), on a local disk; or
    `postgresql://USER@HOST/DATABASE`. An attempt that shows no life for `lease_s` seconds is free.
    Raises `InvalidConfigError`, `UnavailableError`.
    """
    return SqlLedger(open_database(url), lease_s)


class SqlLedger(SqlSyncs):
    """`Ledger` in one database. Safe to use from several threads and processes.

    `new_attempt_id` makes what tells attempts apart for ever: at most 32 characters.
    """

    def __init__(
        self, database: Database, lease_s: float, *, new_attempt_id: Callable[[], str] = lambda: secrets.token_hex(16)
    ) -> None:
        super().__init__(database)
        self._lease_s = lease_s
        self._new_attempt_id = new_attempt_id

    def create_run(self, name: str, spec: RunSpec, order_fingerprint: str, *, epoch_samples: int) -> tuple[Run, bool]:
        arguments.check_name(name)

        def work(connection: Connection) -> tuple[Run, bool]:
            run, created = runs.create(
                connection, name, spec, order_fingerprint, epoch_samples=epoch_samples, now=self._now(connection)
            )
            return self._describe(connection, run), created

        return self._database.write(work)

    def amend_run(self, name: str, added: RunStage, before: str) -> tuple[Run, bool]:
        arguments.check_number("first_step", added.stage.first_step, 2, MAX_COUNT)
        row = stages.row_of(added)

        def work(connection: Connection) -> tuple[Run, bool]:
            run = runs.lock_by_name(connection, name)
            amended = stages.amend(connection, run, row, before, now=self._now(connection), lease_s=self._lease_s)
            return self._describe(connection, runs.read_by_name(connection, name)), amended

        return self._database.write(work)

    def get_run(self, name: str) -> Run:
        return self._database.read(lambda c: self._describe(c, runs.read_by_name(c, name)))

    def list_runs(self, limit: int, after: str = "") -> list[Run]:
        return self._database.read(lambda c: [self._describe(c, run) for run in runs.list_rows(c, limit, after)])

    def delete_run(self, name: str) -> None:
        def work(connection: Connection) -> None:
            run = runs.lock_by_name(connection, name)
            attempt = runs.read_attempt(connection, run, self._lease_s)
            attempt_rules.refuse_live_delete(run, attempt, self._now(connection))
            runs.remove(connection, run)

        self._database.write(work)

    def begin_attempt(
        self,
        name: str,
        *,
        resume: bool,
        cursor: Cursor | None,
        version: int | None,
        world_size: int,
        dp_world_size: int,
        batch: BatchSpec | None,
        holder: str,
        take_over: bool,
    ) -> Attempt:
        request = BeginRequest(
            resume=resume,
            cursor=cursor,
            version=version,
            world_size=world_size,
            dp_world_size=dp_world_size,
            batch=batch,
            holder=holder,
            take_over=take_over,
            attempt_id=self._new_attempt_id(),
        )
        arguments.check_begin(request)

        def work(connection: Connection) -> Attempt:
            run = runs.lock_by_name(connection, name)
            return attempts.begin(connection, run, request, self._now(connection), self._lease_s)

        return self._database.write(work)

    def get_attempt(self, name: str, number: int) -> Attempt:
        return self._database.read(
            lambda c: runs.read_any_attempt(c, runs.read_by_name(c, name), number, self._lease_s)
        )

    def rewind_run(self, name: str, version: int) -> Run:
        arguments.check_number("version", version, 0)

        def work(connection: Connection) -> Run:
            attempts.rewind(connection, runs.lock_by_name(connection, name), version, self._now(connection))
            return self._describe(connection, runs.read_by_name(connection, name))

        return self._database.write(work)

    def open_stream(
        self,
        name: str,
        *,
        attempt: AttemptKey,
        world_rank: int,
        dp_rank: int,
        next_step: int,
        stream_id: str,
        takes_offers: bool = False,
        acked_offer: int = 0,
    ) -> Run:
        request = OpenRequest(
            attempt=attempt,
            world_rank=world_rank,
            dp_rank=dp_rank,
            next_step=next_step,
            stream_id=stream_id,
            takes_offers=takes_offers,
            acked_offer=acked_offer,
        )
        arguments.check_open(request)

        def work(connection: Connection) -> Run:
            run = runs.lock_by_name(connection, name)
            current = self._current(connection, run, attempt)
            streams.open_stream(connection, run, current, request, now=self._now(connection), lease_s=self._lease_s)
            return self._describe(connection, run)

        return self._database.write(work)

    def renew_leases(self, stream_ids: Collection[str]) -> None:
        self._database.note(lambda c: streams.renew(c, stream_ids, self._now(c) + self._lease_s))

    def close_stream(self, stream_id: str) -> None:
        self._database.write(lambda c: streams.close_stream(c, stream_id, self._now(c)))

    def seal(self, run_uid: str, attempt: AttemptKey, proposed: ProposedSeal) -> Seal:
        arguments.check_seal(proposed)
        return self._database.write(
            lambda c: seals.seal(c, runs.lock_by_uid(c, run_uid), attempt, proposed, self._now(c))
        )

    def get_seal(self, run_uid: str, step: int) -> Seal | None:
        return self._database.read(lambda c: seals.read_seal(c, run_uid, step))

    def record_acks(self, run_uid: str, attempt: AttemptKey, acks: Mapping[int, int]) -> Progress:
        return self._database.note(lambda c: streams.record_acks(c, runs.lock_by_uid(c, run_uid), attempt, acks))

    def progress(self, run_uid: str) -> Progress:
        return self._database.read(lambda c: streams.progress(c, runs.read_by_uid(c, run_uid)))

    def commit_cursor(self, name: str, attempt: AttemptKey, cursor: Cursor, checkpoint_uri: str) -> Run:
        arguments.check_label("checkpoint_uri", checkpoint_uri, arguments.MAX_URI_LENGTH, empty=True)

        def work(connection: Connection) -> Run:
            run = runs.lock_by_name(connection, name)
            current = self._current(connection, run, attempt)
            commits.commit(connection, run, current, cursor, checkpoint_uri, now=self._now(connection))
            return self._describe(connection, runs.read_by_name(connection, name))

        return self._database.write(work)

    def cursor_at(self, name: str, version: int | None) -> tuple[Cursor, str]:
        def work(connection: Connection) -> tuple[Cursor, str]:
            run = runs.read_by_name(connection, name)
            wanted = run.committed.step if version is None else version
            return commits.cursor_of(connection, run, wanted)

        return self._database.read(work)

    def list_commits(self, name: str, limit: int, after_step: int = -1) -> list[Commit]:
        return self._database.read(lambda c: commits.list_commits(c, runs.read_by_name(c, name), limit, after_step))

    def list_events(self, name: str, limit: int, after: int = 0) -> list[Event]:
        return self._database.read(lambda c: events.list_events(c, runs.read_by_name(c, name), limit, after))

    def close(self) -> None:
        self._database.close()

    def _describe(self, connection: Connection, run: RunRow) -> Run:
        last = seals.read_seal(connection, run.uid, run.sealed_step)
        return runs.describe(connection, run, last, now=self._now(connection), lease_s=self._lease_s)

    def _current(self, connection: Connection, run: RunRow, attempt: AttemptKey) -> Attempt:
        """The attempt that the caller names, which must be the current one."""
        attempt_rules.refuse_stale_attempt(run, attempt)
        return runs.read_any_attempt(connection, run, attempt.number, self._lease_s)
