"""Runs, attempts, commits and events of the ledger, as proto messages."""

from dataserver.ledger.history import Commit, Event
from dataserver.ledger.interface import Attempt, Run, RunStage
from dataserver.ledger.totals import SealedTotals
from dataserver.packing.figures import PackingFigures
from dataserver.v1 import cursor_service_pb2, run_pb2, run_service_pb2
from dataserver.wire.messages import batch_spec_to_proto, cursor_to_proto, order_spec_to_proto, run_spec_to_proto
from dataserver.wire.times import to_timestamp


def run_to_proto(run: Run, *, mixture: run_pb2.Mixture | None) -> run_pb2.Run:
    """`mixture` is None where this server cannot tell, for want of the run's stores, or was not asked."""
    return run_pb2.Run(
        name=run.name,
        uid=run.uid,
        spec=run_spec_to_proto(run.spec),
        order_fingerprint=run.order_fingerprint,
        create_time=to_timestamp(run.create_time),
        attempt=None if run.attempt is None else attempt_to_proto(run.attempt),
        committed=cursor_to_proto(run.committed),
        sealed_step=run.sealed_step,
        consumed_step=run.consumed_step,
        acked_steps=run.acked_steps,
        ended=run.ended,
        epoch_samples=run.stages[run.committed.stage].epoch_samples,
        stages=[stage_to_proto(stage) for stage in run.stages],
        totals=None if run.totals is None else totals_to_proto(run.totals),
        mixture=mixture,
        read_time=to_timestamp(run.read_time),
    )


def totals_to_proto(totals: SealedTotals) -> run_pb2.SealedTotals:
    """What the sealed steps add up to."""
    tokens = sum(totals.store_tokens.values())
    return run_pb2.SealedTotals(
        steps=totals.steps,
        last=figures_to_proto(totals.last),
        mean=figures_to_proto(totals.mean),
        stores=[
            run_pb2.StoreTokens(store=store, tokens=count, share=count / tokens)
            for store, count in totals.store_tokens.items()
        ],
    )


def figures_to_proto(figures: PackingFigures) -> run_pb2.PackingFigures:
    """The three figures of a packing."""
    return run_pb2.PackingFigures(
        token_efficiency=figures.token_efficiency,
        rank_imbalance=figures.rank_imbalance,
        round_inflation=figures.round_inflation,
    )


def stage_to_proto(stage: RunStage) -> run_pb2.Stage:
    """A stage of a run."""
    return run_pb2.Stage(
        first_step=stage.stage.first_step,
        order=order_spec_to_proto(stage.stage.order),
        order_fingerprint=stage.order_fingerprint,
    )


def attempt_to_proto(attempt: Attempt) -> run_pb2.Attempt:
    """The attempt as clients see it."""
    return run_pb2.Attempt(
        number=attempt.number,
        attempt_id=attempt.attempt_id,
        base=cursor_to_proto(attempt.base),
        version=attempt.version,
        world_size=attempt.world_size,
        dp_world_size=attempt.dp_world_size,
        batch=batch_spec_to_proto(attempt.batch),
        holder=attempt.holder,
        begin_time=to_timestamp(attempt.begin_time),
        lease_expire_time=to_timestamp(attempt.lease_expire_time),
    )


def commit_to_proto(commit: Commit) -> cursor_service_pb2.Commit:
    """A committed checkpoint."""
    return cursor_service_pb2.Commit(
        cursor=cursor_to_proto(commit.cursor),
        attempt=commit.attempt,
        checkpoint_uri=commit.checkpoint_uri,
        time=to_timestamp(commit.time),
    )


def event_to_proto(event: Event) -> run_service_pb2.RunEvent:
    """One thing that happened to a run."""
    return run_service_pb2.RunEvent(
        time=to_timestamp(event.time),
        kind=event.kind,
        attempt=event.attempt,
        step=event.step,
        detail=event.detail,
    )
