"""Who gets which ranks of the group, and what a prepare is answered."""

from collections.abc import Mapping, Sequence

from orchestrator.engines.interface import Transfer as EngineTransfer
from orchestrator.engines.interface import Transport
from orchestrator.transfers.party import Party
from orchestrator.transfers.values import PrepareRequest, Ready, ReadyEngine, RefusalReason, Refused


def offers_for(request: PrepareRequest, parties: Sequence[Party], deadline_s: float) -> dict[Party, EngineTransfer]:
    """The transfer as each engine sees it. Rank 0 is the trainer's; workers follow, engine by engine."""
    in_group = request.transport is not Transport.FILESYSTEM
    group_size = 1 + sum(party.member.workers for party in parties) if in_group else 0
    offers = {}
    first_rank = 1
    for party in parties:
        offers[party] = EngineTransfer(
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
    return offers


def ready_answer(offers: Mapping[Party, EngineTransfer], expires_s: float) -> Ready:
    """The answer when engines wait."""
    return Ready(
        engines=tuple(
            ReadyEngine(name=party.name, first_rank=offer.first_rank, workers=party.member.workers)
            for party, offer in offers.items()
        ),
        group_size=next(iter(offers.values())).group_size,
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
