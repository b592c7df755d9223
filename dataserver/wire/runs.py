"""What the services tell about runs, cursors and steps, as values.

Times are seconds since 1970 by the ledger's clock.
"""

from dataclasses import dataclass, field

from dataserver.cursor import Cursor
from dataserver.run_spec import BatchSpec, OrderSpec, RunSpec
from dataserver.v1 import cursor_service_pb2, run_pb2, run_service_pb2
from dataserver.wire.messages import (
    batch_spec_from_proto,
    cursor_from_proto,
    order_spec_from_proto,
    run_spec_from_proto,
)
from dataserver.wire.mixture import MixtureInfo, mixture_from_proto
from dataserver.wire.times import to_seconds
from dataserver.wire.totals import FiguresInfo, TotalsInfo, figures_from_proto, totals_from_proto


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptInfo:
    """One life of a run's trainer job. `version`: policy version of the weights that it began with.

    `number` is for people, and may repeat when a run is created again; `attempt_id` never does. World rank 0 begins
    the attempt and hands this whole value, which pickles, to the other ranks.
    """

    number: int
    attempt_id: str
    base: Cursor
    version: int
    world_size: int
    dp_world_size: int
    batch: BatchSpec
    holder: str
    begin_time: float
    lease_expire_time: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StageInfo:
    """An order of a run, from `first_step` on; cursors in it carry its fingerprint."""

    first_step: int
    order: OrderSpec
    order_fingerprint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """A run as it stands. `attempt` is None before the first one and after a rewind.

    `acked_steps[w]`: what world rank w acknowledged last; `consumed_step`: their minimum. `totals` is None where the
    ledger has no sealed step; `mixture` where that step's order has no weights, too, or the server cannot tell, and
    in lists. `read_time`: when it stood so, by the clock of all leases, which is not this host's; two are equal
    whenever they were read.
    """

    name: str
    uid: str
    spec: RunSpec
    order_fingerprint: str
    stages: tuple[StageInfo, ...]
    create_time: float
    attempt: AttemptInfo | None
    committed: Cursor
    sealed_step: int
    consumed_step: int
    acked_steps: tuple[int, ...]
    ended: bool
    epoch_samples: int
    totals: TotalsInfo | None
    mixture: MixtureInfo | None
    read_time: float = field(compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEventInfo:
    """One thing that happened to a run. `attempt` is 0 where it concerns none."""

    time: float
    kind: str
    attempt: int
    step: int
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitInfo:
    """A checkpoint that holds everything up to `cursor`."""

    cursor: Cursor
    attempt: int
    checkpoint_uri: str
    time: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CursorInfo:
    """A cursor that survives. `checkpoint_uri` is empty where no checkpoint was committed for it."""

    cursor: Cursor
    checkpoint_uri: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RewindInfo:
    """Where a run stands after a rewind. Attempts up to `fenced_attempt` are over."""

    committed: Cursor
    fenced_attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSample:
    """One sample of a plan: row of the store, counted before any drop, and tokens served, from `offset` on."""

    store: str
    row: int
    offset: int
    length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedMicroBatch:
    """One micro-batch of a plan, with its samples in the order of the run, as they lie in it."""

    round: int
    dp_rank: int
    samples: tuple[PlannedSample, ...]
    is_image_round: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDescription:
    """One step's plan. `attempt` is 0 for a step that is not sealed, or not for so many ranks."""

    step: int
    attempt: int
    begin: Cursor
    end: Cursor
    plan_digest: str
    sync_weights: bool
    last: bool
    dp_world_size: int
    micro_batches: tuple[PlannedMicroBatch, ...]
    figures: FiguresInfo
    target_count: int
    token_count: int
    sample_count: int


def run_from_proto(message: run_pb2.Run) -> RunInfo:
    """Read a run."""
    return RunInfo(
        name=message.name,
        uid=message.uid,
        spec=run_spec_from_proto(message.spec),
        order_fingerprint=message.order_fingerprint,
        stages=tuple(_stage(stage) for stage in message.stages),
        create_time=to_seconds(message.create_time),
        attempt=attempt_from_proto(message.attempt) if message.HasField("attempt") else None,
        committed=cursor_from_proto(message.committed),
        sealed_step=message.sealed_step,
        consumed_step=message.consumed_step,
        acked_steps=tuple(message.acked_steps),
        ended=message.ended,
        epoch_samples=message.epoch_samples,
        totals=totals_from_proto(message.totals) if message.HasField("totals") else None,
        mixture=mixture_from_proto(message.mixture) if message.HasField("mixture") else None,
        read_time=to_seconds(message.read_time),
    )


def _stage(message: run_pb2.Stage) -> StageInfo:
    return StageInfo(
        first_step=message.first_step,
        order=order_spec_from_proto(message.order),
        order_fingerprint=message.order_fingerprint,
    )


def attempt_from_proto(message: run_pb2.Attempt) -> AttemptInfo:
    """Read an attempt."""
    return AttemptInfo(
        number=message.number,
        attempt_id=message.attempt_id,
        base=cursor_from_proto(message.base),
        version=message.version,
        world_size=message.world_size,
        dp_world_size=message.dp_world_size,
        batch=batch_spec_from_proto(message.batch),
        holder=message.holder,
        begin_time=to_seconds(message.begin_time),
        lease_expire_time=to_seconds(message.lease_expire_time),
    )


def event_from_proto(message: run_service_pb2.RunEvent) -> RunEventInfo:
    """Read an event."""
    return RunEventInfo(
        time=to_seconds(message.time),
        kind=message.kind,
        attempt=message.attempt,
        step=message.step,
        detail=message.detail,
    )


def commit_from_proto(message: cursor_service_pb2.Commit) -> CommitInfo:
    """Read a commit."""
    return CommitInfo(
        cursor=cursor_from_proto(message.cursor),
        attempt=message.attempt,
        checkpoint_uri=message.checkpoint_uri,
        time=to_seconds(message.time),
    )


def step_from_proto(message: cursor_service_pb2.DescribeStepResponse) -> StepDescription:
    """Read a step's plan."""
    return StepDescription(
        step=message.step,
        attempt=message.attempt,
        begin=cursor_from_proto(message.begin),
        end=cursor_from_proto(message.end),
        plan_digest=message.plan_digest,
        sync_weights=message.sync_weights,
        last=message.last,
        dp_world_size=message.dp_world_size,
        micro_batches=tuple(
            PlannedMicroBatch(
                round=planned.round,
                dp_rank=planned.dp_rank,
                is_image_round=planned.is_image_round,
                samples=tuple(
                    PlannedSample(store=sample.store, row=sample.row, offset=sample.offset, length=sample.length)
                    for sample in planned.samples
                ),
            )
            for planned in message.micro_batches
        ),
        figures=figures_from_proto(message.figures),
        target_count=message.target_count,
        token_count=message.token_count,
        sample_count=message.sample_count,
    )
