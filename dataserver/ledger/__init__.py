"""The ledger: what stands fixed about runs. Durable, atomic, behind one interface.

interface   what others see: values and the `Ledger` protocol; `steps` and `sync_interface` belong to it
rules       every refusal, as pure functions
sql         the ledger on a database: one transaction a method
  runs, stages, attempts, streams, seals, commits    what those transactions do
sql_syncs   the part of it that is about syncs of weights
  wishes, reports, offers, syncs                     what those transactions do
database    the database that holds it
history     commits and events
totals      what sealed steps add up to
schema      tables and their version
"""

from dataserver.ledger.history import Commit, Event
from dataserver.ledger.interface import Attempt, Ledger, Run, RunStage
from dataserver.ledger.sql import open_ledger
from dataserver.ledger.steps import AttemptKey, Progress, ProposedSeal, Seal

__all__ = [
    "Attempt",
    "AttemptKey",
    "Commit",
    "Event",
    "Ledger",
    "Progress",
    "ProposedSeal",
    "Run",
    "RunStage",
    "Seal",
    "open_ledger",
]
