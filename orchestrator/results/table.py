"""The table of results: append-only, idempotent, in SQLite or PostgreSQL.

A result's key is (run, attempt, eval, version). Who writes one that is there already gets what stands: so whoever
comes back after a crash may write again, and of two orchestrators the first one counts.
"""

import json
from collections.abc import Sequence

from sqlalchemy import Connection, Row, insert, select
from sqlalchemy.sql import ColumnElement

from dataserver.database import Database, open_database
from dataserver.weight_sync import PolicyVersion
from orchestrator.results import schema
from orchestrator.results.records import Answer, EvalResult, EvalState, tokens_from_json, tokens_to_json

# Where results are kept unless a configuration says otherwise.
DEFAULT_DATABASE = "sqlite:///evals.db"


def open_results(url: str) -> "ResultsTable":
    """The results in the database `url`, created where there are none.

    `sqlite:///PATH`, on a local disk, or `postgresql://USER@HOST/DATABASE`, the ledger's own perhaps. Raises
    `InvalidConfigError`, `UnavailableError`.
    """
    return ResultsTable(open_database(url, what="results", prepare=schema.prepare))


class ResultsTable:
    """Results of any number of runs. Safe to use from several threads and processes."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def record(self, result: EvalResult, answers: Sequence[Answer] = ()) -> EvalResult:
        """Write a result that has ended, with its answers, at once; returns what stands, which may be older."""
        if result.end_time is None:
            raise ValueError(f"eval {result.eval_id} has not ended")

        def work(connection: Connection) -> EvalResult:
            key = _key_of(result)
            there = connection.execute(select(schema.results).filter_by(**key)).one_or_none()
            if there is not None:
                return _result(there)
            connection.execute(insert(schema.results).values(**key, **_fields_of(result)))
            if answers:
                connection.execute(insert(schema.answers), [key | _answer_fields(answer) for answer in answers])
            return result

        return self._database.write(work)

    def of_run(self, run_uid: str) -> list[EvalResult]:
        """All results of one run, the oldest first."""
        return self._list(schema.results.c.run_uid == run_uid)

    def find(self, *, run: str | None = None, name: str | None = None) -> list[EvalResult]:
        """Results of all runs of that name, and of the evals of that name, the oldest first."""
        table = schema.results
        wanted = [column == value for column, value in ((table.c.run, run), (table.c.name, name)) if value is not None]
        return self._list(*wanted)

    def answers_of(self, result: EvalResult) -> list[Answer]:
        """The answers behind a result, in the order of prompts."""
        table = schema.answers
        query = select(table).filter_by(**_key_of(result)).order_by(table.c.prompt, table.c.sample)
        return self._database.read(lambda c: [_answer(row) for row in c.execute(query)])

    def trigger(self, run_uid: str, name: str, number: int, *, now: float) -> None:
        """Note that a person asked for the eval `name` of version `number`; once or more."""
        key = {"run_uid": run_uid, "name": name, "version": number}

        def work(connection: Connection) -> None:
            if connection.execute(select(schema.triggers).filter_by(**key)).one_or_none() is None:
                connection.execute(insert(schema.triggers).values(**key, create_time=now))

        self._database.write(work)

    def triggers_of(self, run_uid: str) -> list[tuple[str, int]]:
        """What was asked for of a run: names of evals, and versions."""
        table = schema.triggers
        query = select(table.c.name, table.c.version).where(table.c.run_uid == run_uid)
        return self._database.read(lambda c: [(row.name, row.version) for row in c.execute(query)])

    def close(self) -> None:
        """Close all connections. Idempotent."""
        self._database.close()

    def _list(self, *conditions: ColumnElement[bool]) -> list[EvalResult]:
        table = schema.results
        query = select(table).where(*conditions)
        query = query.order_by(table.c.end_time, table.c.name, table.c.attempt, table.c.version)
        return self._database.read(lambda c: [_result(row) for row in c.execute(query)])


def _key_of(result: EvalResult) -> dict[str, object]:
    version = result.version
    return {"run_uid": result.run_uid, "attempt": version.attempt, "name": result.name, "version": version.number}


def _fields_of(result: EvalResult) -> dict[str, object]:
    return {
        "run": result.run,
        "due": result.due,
        "state": result.state.value,
        "samples": result.samples,
        "scored": result.scored,
        "figures": json.dumps(dict(result.figures)),
        "version_tokens": tokens_to_json(result.version_tokens),
        "create_time": result.create_time,
        "end_time": result.end_time,
        "detail": result.detail,
    }


def _result(row: Row[tuple[object, ...]]) -> EvalResult:
    return EvalResult(
        run=row.run,
        run_uid=row.run_uid,
        name=row.name,
        version=PolicyVersion(attempt=row.attempt, number=row.version),
        due=row.due,
        state=EvalState(row.state),
        samples=row.samples,
        scored=row.scored,
        figures=json.loads(row.figures),
        version_tokens=tokens_from_json(row.version_tokens),
        create_time=row.create_time,
        end_time=row.end_time,
        detail=row.detail,
    )


def _answer_fields(answer: Answer) -> dict[str, object]:
    return {
        "prompt": answer.prompt,
        "sample": answer.sample,
        "reward": answer.reward,
        "text": _storable(answer.text),
        "tokens": answer.tokens,
        "finish_reason": answer.finish_reason,
        "version_tokens": tokens_to_json(answer.version_tokens),
        "engine": answer.engine,
    }


def _answer(row: Row[tuple[object, ...]]) -> Answer:
    return Answer(
        prompt=row.prompt,
        sample=row.sample,
        reward=row.reward,
        text=row.text,
        tokens=row.tokens,
        finish_reason=row.finish_reason,
        version_tokens=tokens_from_json(row.version_tokens),
        engine=row.engine,
    )


def _storable(text: str) -> str:
    """What both databases take: PostgreSQL has no NUL, neither has a lone half of a character."""
    return text.replace("\0", "\ufffd").encode(errors="replace").decode()
