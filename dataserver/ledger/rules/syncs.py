"""Rules 14 and 16: whose versions reports are about, and who is the orchestrator.

Reached through this module's name, as all rules, so that a test can take one away.
"""

from dataclasses import replace

from dataserver.errors import InvalidRequestError, OrchestratorAliveError, StaleAttemptError
from dataserver.ledger.records import RunRow
from dataserver.weight_sync import OrchestratorAddress, OrchestratorLease, PolicyVersion, SyncOutcome, WeightSync

# The later one stands when two report one sync: who knows that it landed knows best.
_WEIGHT = {SyncOutcome.SKIPPED: 0, SyncOutcome.FAILED: 1, SyncOutcome.LANDED: 2}


def refuse_dropped_version(run: RunRow, version: PolicyVersion, maker: int | None) -> None:
    """Rule 14: a report is about a version that survives; `maker` is the attempt that made the surviving one.

    Else a late report of the version 7 that was rewound counts for the retrained one, which no engine has.
    """
    if maker == version.attempt:
        return
    if maker is None or version.attempt > run.last_attempt:
        raise InvalidRequestError(
            f"run {run.name!r} has no version {version}: the highest is {run.sealed_step}, the last attempt "
            f"{run.last_attempt}"
        )
    raise StaleAttemptError(
        f"version {version} of run {run.name!r} was dropped: version {version.number} is attempt {maker}'s now",
        attempt=version.attempt,
        current_attempt=maker,
    )


def refuse_other_version(there: WeightSync, reported: WeightSync) -> None:
    """Rule 14: a sync's id names one transfer of one version."""
    if there.version != reported.version:
        raise InvalidRequestError(
            f"sync {reported.sync_id} is one of version {there.version}, and is reported for version "
            f"{reported.version}: give each transfer an id of its own"
        )


def merged(there: WeightSync, reported: WeightSync) -> WeightSync:
    """Rule 14: what two reports of one sync say together; the order in which they come does not matter.

    `landed` wins, since an engine serves the version; then `failed`. Else a trainer whose commit was cut off takes the
    version back that engines serve, and it is sent again for ever.
    """
    first, second = (reported, there) if wins(reported, there) else (there, reported)
    return replace(
        first,
        seconds=max(first.seconds, second.seconds),
        stall_seconds=max(first.stall_seconds, second.stall_seconds),
        engines=tuple(sorted({*first.engines, *second.engines})),
        detail=first.detail or second.detail,
        report_time=there.report_time,
    )


def wins(reported: WeightSync, there: WeightSync) -> bool:
    """Rule 14: whether the outcome that is reported stands over the one that is there."""
    return _WEIGHT[reported.outcome] > _WEIGHT[there.outcome]


def refuse_live_orchestrator(run: RunRow, lease: OrchestratorLease | None, holder: str, now: float) -> None:
    """Rule 16: a run has one orchestrator at a time, and who takes over waits the lease out.

    Else two of them pause, update and resume the same engines, each in the middle of the other's transfer.
    """
    if lease is None or lease.holder == holder or lease.expire_time <= now:
        return
    raise OrchestratorAliveError(
        f"run {run.name!r} has an orchestrator: {lease.holder!r} at {lease.orchestrator.address}, for at least "
        f"{lease.expire_time - now:.1f} s more. Stop it, or wait until it is silent for so long",
        holder=lease.holder,
        address=lease.orchestrator.address,
        wait_s=f"{lease.expire_time - now:.3f}",
    )


def leased(
    lease: OrchestratorLease | None, holder: str, address: str, *, expire_time: float, now: float
) -> OrchestratorLease:
    """Rule 16: the lease that `holder` gets; epochs grow with every orchestrator, and with every gap of one.

    Else a trainer calls by an old stamp and meets an orchestrator that knows nothing of what that stamp began.
    """
    goes_on = lease is not None and lease.holder == holder and lease.expire_time > now
    if lease is not None and goes_on and lease.orchestrator.address == address:
        return replace(lease, expire_time=expire_time)
    epoch = next_epoch(0 if lease is None else lease.orchestrator.epoch)
    return OrchestratorLease(
        orchestrator=OrchestratorAddress(epoch=epoch, address=address), holder=holder, expire_time=expire_time
    )


def next_epoch(epoch: int) -> int:
    """Rule 16: epochs increase and are never reused."""
    return epoch + 1
