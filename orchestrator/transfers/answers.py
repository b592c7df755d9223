"""Who gets which ranks of the group, what a prepare is answered, and how a transfer is reported."""

from collections.abc import Mapping, Sequence

from dataserver.weight_sync import SyncOutcome, WeightSync
from orchestrator.engines.interface import Transfer as EngineTransfer
from orchestrator.engines.interface import Transport
from orchestrator.transfers.party import Party
from orchestrator.transfers.values import PrepareRequest, Ready, ReadyEngine, RefusalReason, Refused


def announcements(request: PrepareRequest, parties: Sequence[Party], deadline_s: float) -> dict[Party, EngineTransfer]:
    """The transfer as each engine sees it. Rank 0 is the trainer's; workers follow, engine by engine."""
    in_group = request.transport is not Transport.FILESYSTEM
    group_size = 1 + sum(party.member.workers for party in parties) if in_group else 0
    announced = {}
    first_rank = 1
    for party in parties:
        announced[party] = EngineTransfer(
            sync_id=request.sync_id,
            transport=request.transport,
            tensors=request.tensors,
            bucket_bytes=request.bucket_bytes,
            deadline_s=deadline_s,
            rendezvous=request.rendezvous,
            group_size=group_size,
            first_rank=first_rank if in_group else 0,
            directory=request.directory,
        )
        first_rank += party.member.workers
    return announced


def ready_answer(announced: Mapping[Party, EngineTransfer], expires_s: float) -> Ready:
    """The answer when engines wait."""
    return Ready(
        engines=tuple(
            ReadyEngine(name=party.name, first_rank=transfer.first_rank, workers=party.member.workers)
            for party, transfer in announced.items()
        ),
        group_size=next(iter(announced.values())).group_size,
        expires_s=expires_s,
    )


def refusal(parties: Sequence[Party], aborted: str | None) -> Refused:
    """The answer when no engine got ready: why the first did not, a mismatch before all else."""
    if aborted is not None:
        return Refused(reason=RefusalReason.STALE, detail=f"the transfer was aborted: {aborted}")
    faults = "; ".join(party.fault for party in parties)
    if any(party.mismatch for party in parties):
        return Refused(reason=RefusalReason.MISMATCH, detail=faults)
    return Refused(reason=RefusalReason.EXPIRED, detail=f"no engine got ready: {faults}")


def report_of(request: PrepareRequest, parties: Sequence[Party], seconds: float) -> WeightSync:
    """How the transfer ended, `seconds` after its prepare."""
    landed = tuple(party.name for party in parties if party.landed)
    return WeightSync(
        sync_id=request.sync_id,
        version=request.version,
        outcome=SyncOutcome.LANDED if landed else SyncOutcome.FAILED,
        seconds=seconds,
        engines=landed,
        detail="; ".join(f"{party.name}: {party.fault}" for party in parties if party.fault),
    )
