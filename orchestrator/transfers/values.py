"""What trainers ask of an orchestrator, and what they are answered."""

from dataclasses import dataclass
from enum import StrEnum

from dataserver.weight_buckets import TensorSpec
from dataserver.weight_sync import PolicyVersion
from orchestrator.engines.interface import Transport


class RefusalReason(StrEnum):
    """Why a transfer does not take place; the contract says what each means."""

    PINNED = "pinned"
    NO_ENGINE = "no_engine"
    BUSY = "busy"
    STALE = "stale"
    MISMATCH = "mismatch"
    EXPIRED = "expired"
    UNWANTED = "unwanted"
    TRANSPORT = "transport"


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentAttempt:
    """The run's attempt, by the number that is for people and the id that calls are judged by; 0 and "" for none."""

    number: int = 0
    attempt_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareRequest:
    """A transfer that a trainer wants to begin; the contract says what each field means."""

    run: str
    version: PolicyVersion
    attempt_id: str
    sync_id: str
    epoch: int
    transport: Transport
    tensors: tuple[TensorSpec, ...]
    bucket_bytes: int
    trainer_address: str
    rendezvous: str
    directory: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyEngine:
    """An engine that waits for weights. `first_rank`: in the group, from 1; 0 without a group."""

    name: str
    first_rank: int
    workers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """Engines wait. `group_size`: rank 0 and all workers; 0 without a group. `expires_s`: until when to commit."""

    engines: tuple[ReadyEngine, ...]
    group_size: int
    expires_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The transfer does not take place."""

    reason: RefusalReason
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOutcome:
    """What became of a transfer on one engine; `detail`: why it did not land."""

    engine: str
    landed: bool
    detail: str = ""
