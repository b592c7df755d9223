"""Ledgers on SQLite and on a real PostgreSQL: every test that asks for `ledger` runs on both."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Connection, text

from dataserver.cursor import Cursor
from dataserver.database import Database
from dataserver.ledger import Attempt, AttemptKey, Progress, ProposedSeal, Run, Seal
from dataserver.ledger.database import open_database
from dataserver.ledger.sql import SqlLedger
from dataserver.planning.fingerprint import order_fingerprint
from dataserver.run_spec import BatchSpec, OrderSpec, RunSpec, Source

LEASE_S = 30.0


@pytest.fixture(scope="session")
def postgres_database(postgres) -> Iterator[Database]:
    database = open_database(postgres.url)
    yield database
    database.close()


@pytest.fixture
def empty_postgres(postgres, postgres_database: Database) -> str:
    """URL of a PostgreSQL without runs."""
    postgres_database.write(lambda connection: connection.execute(text("DELETE FROM ledger_runs")))
    return postgres.url


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/ledger.db"
    return request.getfixturevalue("empty_postgres")


class Clock:
    """The ledger's clock, moved by the test."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self, _connection: Connection) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def database(
    request: pytest.FixtureRequest, url: str, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Database]:
    """The database at `url`, by the test's clock."""
    on_file = url.startswith("sqlite")
    database = open_database(url) if on_file else request.getfixturevalue("postgres_database")
    monkeypatch.setattr(database, "clock", clock)
    yield database
    if on_file:
        database.close()


@pytest.fixture
def ledger(database: Database) -> SqlLedger:
    return SqlLedger(database, LEASE_S)


BATCH = BatchSpec(step_samples=2, micro_batch_tokens=16)
SPEC = RunSpec(order=OrderSpec(sources=(Source(store="chat"),), max_length=8), batch=BATCH)


class Story:
    """One run of two ranks, told step by step."""

    def __init__(self, ledger: SqlLedger, spec: RunSpec = SPEC) -> None:
        self.ledger = ledger
        self.spec = spec
        self.fingerprint = order_fingerprint(spec.order, ["store fingerprint"])
        self.uid = ledger.create_run("run", spec, self.fingerprint, epoch_samples=10)[0].uid
        self.keys: dict[int, AttemptKey] = {}
        self.streams: list[str] = []

    @property
    def run(self) -> Run:
        return self.ledger.get_run("run")

    @property
    def kinds(self) -> list[str]:
        return [event.kind for event in self.ledger.list_events("run", 1000)]

    def other_order(self, **fields: object) -> tuple[RunSpec, str]:
        order = OrderSpec.model_validate(self.spec.order.model_dump() | fields)
        return RunSpec(order=order, batch=self.spec.batch), order_fingerprint(order, ["store fingerprint"])

    def cursor(self, step: int, **fields: object) -> Cursor:
        """Where the cut of two samples a step stands after `step`."""
        return replace(Cursor(order_fingerprint=self.fingerprint, step=step, position=2 * step), **fields)

    def begin(self, cursor: Cursor | None = None, *, version: int | None = None, **fields: object) -> Attempt:
        arguments = {
            "resume": cursor is not None or version is not None,
            "cursor": cursor,
            "version": version,
            "world_size": 2,
            "dp_world_size": 2,
            "batch": None,
            "holder": "launcher-a",
            "take_over": False,
        }
        attempt = self.ledger.begin_attempt("run", **arguments | fields)
        self.keys[attempt.number] = attempt.key
        return attempt

    def key(self, attempt: int) -> AttemptKey:
        """What names the attempt of that number; for a number that was never issued, what no attempt has."""
        return self.keys.get(attempt, AttemptKey(number=attempt, attempt_id="never issued"))

    def open(self, attempt: int, rank: int = 0, next_step: int = 1, **fields: object) -> Run:
        """Open another stream; its id stands last in `streams`."""
        stream_id = f"{self.uid}-{len(self.streams)}"
        self.streams.append(stream_id)
        arguments = {"dp_rank": rank, "stream_id": stream_id} | fields
        return self.ledger.open_stream(
            "run", attempt=self.key(attempt), world_rank=rank, next_step=next_step, **arguments
        )

    def ack(self, attempt: int, acks: dict[int, int]) -> Progress:
        return self.ledger.record_acks(self.uid, self.key(attempt), acks)

    def propose(self, step: int, **fields: object) -> ProposedSeal:
        ended = fields.get("end_of_run", False)
        plain = ProposedSeal(
            step=step,
            end=self.cursor(step - 1 if ended else step),
            plan_digest="" if ended else f"digest-{step}",
            planner_version=1,
            last=False,
            end_of_run=False,
            stages=self.fingerprint,
        )
        return replace(plain, **fields)

    def seal(self, attempt: int, step: int, **fields: object) -> Seal:
        return self.ledger.seal(self.uid, self.key(attempt), self.propose(step, **fields))

    def seal_up_to(self, attempt: int, step: int) -> None:
        for sealed in range(self.run.sealed_step + 1, step + 1):
            self.seal(attempt, sealed)

    def commit(self, attempt: int, step: int, uri: str = "", **fields: object) -> Run:
        return self.ledger.commit_cursor("run", self.key(attempt), self.cursor(step, **fields), uri)


@pytest.fixture
def story(ledger: SqlLedger) -> Story:
    return Story(ledger)
