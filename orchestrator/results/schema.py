"""Tables of results, and their version.

    eval_results ──< eval_answers      written together, once, and never changed
    eval_triggers                      what a person asked for

Runs are told apart by their uid: one of the same name that comes after a deletion begins without results.
"""

from sqlalchemy import (
    BigInteger,
    Column,
    Float,
    ForeignKeyConstraint,
    Integer,
    MetaData,
    String,
    Table,
    Text,
)

from dataserver.database import Tables

# Raise by one with every change of a table. There is no migration: export what is to be kept.
SCHEMA_VERSION = 1

metadata = MetaData()

schema_version = Table("eval_schema", metadata, Column("version", Integer, primary_key=True))


def _key() -> list[Column[str] | Column[int]]:
    return [
        Column("run_uid", String(32), primary_key=True),
        Column("attempt", BigInteger, primary_key=True),
        Column("name", String(64), primary_key=True),
        Column("version", BigInteger, primary_key=True),
    ]


results = Table(
    "eval_results",
    metadata,
    *_key(),
    Column("run", String(128), nullable=False, index=True),
    Column("due", BigInteger, nullable=False),
    Column("state", String(16), nullable=False),
    Column("samples", BigInteger, nullable=False),
    Column("scored", BigInteger, nullable=False),
    Column("figures", Text, nullable=False),
    Column("version_tokens", Text, nullable=False),
    Column("create_time", Float(53), nullable=False),
    Column("end_time", Float(53), nullable=False),
    Column("detail", Text, nullable=False),
)

answers = Table(
    "eval_answers",
    metadata,
    *_key(),
    Column("prompt", BigInteger, primary_key=True),
    Column("sample", Integer, primary_key=True),
    Column("reward", Float(53), nullable=False),
    Column("text", Text, nullable=False),
    Column("tokens", BigInteger, nullable=False),
    Column("finish_reason", String(32), nullable=False),
    Column("version_tokens", Text, nullable=False),
    Column("engine", Text, nullable=False),
    ForeignKeyConstraint(
        ["run_uid", "attempt", "name", "version"],
        ["eval_results.run_uid", "eval_results.attempt", "eval_results.name", "eval_results.version"],
        ondelete="CASCADE",
    ),
)

triggers = Table(
    "eval_triggers",
    metadata,
    Column("run_uid", String(32), primary_key=True),
    Column("name", String(64), primary_key=True),
    Column("version", BigInteger, primary_key=True),
    Column("create_time", Float(53), nullable=False),
)


prepare = Tables(
    metadata=metadata,
    versions=schema_version,
    version=SCHEMA_VERSION,
    reader="this orchestrator",
    way_out="export them with the orchestrator that wrote them, or name another database",
).prepare
