"""The ledger: what stands fixed about runs. Durable, atomic, behind one interface.

interface   what others see: values and the `Ledger` protocol
rules       every refusal, as pure functions
sql         the ledger on a database: one transaction a method
  runs, attempts, streams, seals, commits    what those transactions do
database    transactions, retries, the database's faults as ours
engine      SQLite and PostgreSQL, set up for durability
totals      what sealed steps add up to
schema      tables and their version
"""

from dataserver.ledger.interface import (
    Attempt,
    AttemptKey,
    Commit,
    Event,
    Ledger,
    Progress,
    ProposedSeal,
    Run,
    Seal,
)
from dataserver.ledger.sql import open_ledger

__all__ = [
    "Attempt",
    "AttemptKey",
    "Commit",
    "Event",
    "Ledger",
    "Progress",
    "ProposedSeal",
    "Run",
    "Seal",
    "open_ledger",
]
