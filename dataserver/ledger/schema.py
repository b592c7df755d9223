"""Tables of the ledger, and their version.

    runs ──< attempts
     ├────< ranks (acks) ──< streams (leases)       of the current attempt only
     ├────< seals, commits, syncs                   of surviving steps only
     ├────< offers                                  of the current attempt only
     ├────< sync_requests, holds, fenced_holders
     ├───── orchestrators (lease)
     └────< events

Steps, numbers of attempts and policy versions are 64-bit; cursors and specs are JSON text as
`Cursor.to_json`, `SealedTotals.to_json`, `stages.to_json` and pydantic write it; times are seconds since 1970.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
)

from dataserver.database import Tables

# Raise by one with every change of a table. There is no migration: a ledger is small and short-lived.
SCHEMA_VERSION = 7

metadata = MetaData()


def _run_uid() -> Column[str]:
    """First part of every key: whose row it is. Goes with its run."""
    return Column("run_uid", ForeignKey("ledger_runs.uid", ondelete="CASCADE"), primary_key=True)


def _orchestrator() -> tuple[Column[int], Column[str]]:
    """Whom weights are handed over by; both NULL for nobody."""
    return Column("orchestrator_epoch", BigInteger), Column("orchestrator_address", Text)


schema_version = Table("ledger_schema", metadata, Column("version", Integer, primary_key=True))

runs = Table(
    "ledger_runs",
    metadata,
    Column("uid", String(32), primary_key=True),
    Column("name", String(128), nullable=False, unique=True),
    Column("spec", Text, nullable=False),
    Column("order_fingerprint", Text, nullable=False),
    Column("epoch_samples", BigInteger, nullable=False),
    Column("later_stages", Text, nullable=False),
    Column("create_time", Float(53), nullable=False),
    Column("last_attempt", BigInteger, nullable=False),
    Column("current_attempt", BigInteger),
    Column("current_attempt_id", String(32)),
    Column("committed", Text, nullable=False),
    Column("sealed_step", BigInteger, nullable=False),
    Column("ended", Boolean, nullable=False),
    Column("last_requested", Boolean, nullable=False),
    Column("shutdown_deadline", Float(53)),
    Column("last_event", BigInteger, nullable=False),
)

attempts = Table(
    "ledger_attempts",
    metadata,
    _run_uid(),
    Column("number", BigInteger, primary_key=True),
    Column("attempt_id", String(32), nullable=False),
    Column("base", Text, nullable=False),
    Column("world_size", Integer, nullable=False),
    Column("dp_world_size", Integer, nullable=False),
    Column("batch", Text, nullable=False),
    Column("holder", Text, nullable=False),
    Column("begin_time", Float(53), nullable=False),
)

ranks = Table(
    "ledger_ranks",
    metadata,
    _run_uid(),
    Column("world_rank", Integer, primary_key=True),
    Column("dp_rank", Integer),
    Column("takes_offers", Boolean),
    Column("acked_step", BigInteger, nullable=False),
    Column("acked_offer", Integer, nullable=False),
)

# A row per stream of this attempt, also one that is closed: its row keeps a late duplicate of its open from
# reviving it, and says that there was a stream. A rank's next close removes it.
streams = Table(
    "ledger_streams",
    metadata,
    Column("stream_id", String(64), primary_key=True),
    Column("run_uid", ForeignKey("ledger_runs.uid", ondelete="CASCADE"), nullable=False),
    Column("world_rank", Integer, nullable=False),
    Column("closed", Boolean, nullable=False),
    Column("lease_expire_time", Float(53), nullable=False),
    Index("ledger_streams_by_run", "run_uid"),
)

seals = Table(
    "ledger_seals",
    metadata,
    _run_uid(),
    Column("step", BigInteger, primary_key=True),
    Column("attempt", BigInteger, nullable=False),
    Column("end_cursor", Text, nullable=False),
    Column("plan_digest", Text, nullable=False),
    Column("planner_version", Integer, nullable=False),
    Column("sync_weights", Boolean, nullable=False),
    *_orchestrator(),
    Column("last", Boolean, nullable=False),
    Column("end_of_run", Boolean, nullable=False),
    Column("totals", Text),
)

commits = Table(
    "ledger_commits",
    metadata,
    _run_uid(),
    Column("step", BigInteger, primary_key=True),
    Column("attempt", BigInteger, nullable=False),
    Column("cursor", Text, nullable=False),
    Column("checkpoint_uri", Text, nullable=False),
    Column("time", Float(53), nullable=False),
)

offers = Table(
    "ledger_offers",
    metadata,
    _run_uid(),
    Column("number", Integer, primary_key=True),
    Column("version_attempt", BigInteger, nullable=False),
    Column("version_number", BigInteger, nullable=False),
    Column("sync_weights", Boolean, nullable=False),
    *_orchestrator(),
    Column("seal_time", Float(53), nullable=False),
)

# `offers`: how many offers of the current attempt were sealed when the sync was first reported.
syncs = Table(
    "ledger_syncs",
    metadata,
    _run_uid(),
    Column("sync_id", String(32), primary_key=True),
    Column("attempt", BigInteger, nullable=False),
    Column("number", BigInteger, nullable=False),
    Column("outcome", String(16), nullable=False),
    Column("seconds", Float(53), nullable=False),
    Column("stall_seconds", Float(53), nullable=False),
    Column("engines", Text, nullable=False),
    Column("detail", Text, nullable=False),
    Column("report_time", Float(53), nullable=False),
    Column("offers", Integer, nullable=False),
    Index("ledger_syncs_by_version", "run_uid", "number"),
    Index("ledger_syncs_by_time", "run_uid", "report_time"),
)

# One row a run: it stays when the lease ends, so that epochs only grow.
orchestrators = Table(
    "ledger_orchestrators",
    metadata,
    _run_uid(),
    Column("epoch", BigInteger, nullable=False),
    Column("holder", String(256), nullable=False),
    Column("address", String(256), nullable=False),
    Column("expire_time", Float(53), nullable=False),
)

sync_requests = Table(
    "ledger_sync_requests",
    metadata,
    _run_uid(),
    Column("version", BigInteger, primary_key=True),
)

holds = Table(
    "ledger_holds",
    metadata,
    _run_uid(),
    Column("hold_id", String(256), primary_key=True),
    Column("expire_time", Float(53), nullable=False),
)

fenced_holders = Table(
    "ledger_fenced_holders",
    metadata,
    _run_uid(),
    Column("holder", String(256), primary_key=True),
)

events = Table(
    "ledger_events",
    metadata,
    _run_uid(),
    Column("number", BigInteger, primary_key=True),
    Column("time", Float(53), nullable=False),
    Column("kind", String(32), nullable=False),
    Column("attempt", BigInteger, nullable=False),
    Column("step", BigInteger, nullable=False),
    Column("detail", Text, nullable=False),
)


prepare = Tables(
    metadata=metadata,
    versions=schema_version,
    version=SCHEMA_VERSION,
    reader="this server",
    way_out="run the server that wrote it, or begin a new ledger (checkpoints carry their cursors, so runs can be "
    "resumed in it)",
).prepare
