"""The data server, as trainers, orchestrators and people's programs call it."""

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from dataserver.client.begin import begin_attempt
from dataserver.client.calls import Calls
from dataserver.client.connection import Channels, ConnectionSettings, parse_endpoints
from dataserver.client.eval_stream import EvalStream
from dataserver.client.store_calls import StoreCalls
from dataserver.client.stream import StepStream
from dataserver.client.streams import Streams
from dataserver.cursor import Cursor
from dataserver.errors import InvalidRequestError
from dataserver.eval_spec import EvalSpec
from dataserver.run_spec import BatchSpec, OrderSpec, RunSpec
from dataserver.v1 import cursor_service_pb2 as cursors_pb2
from dataserver.v1 import run_service_pb2 as runs_pb2
from dataserver.wire import runs
from dataserver.wire.build import built
from dataserver.wire.messages import (
    batch_spec_to_proto,
    cursor_from_proto,
    cursor_to_proto,
    order_spec_to_proto,
    run_spec_to_proto,
)

DEFAULT_CREDITS: Final = 8
"""Micro-batches in flight: one in use and some in store, of which two already hide the network."""


class DataClient(StoreCalls):
    """A client of one or several equal data servers.

    `endpoints`: `host:port[,host:port…]`. `token`: bearer token. `ca`: PEM file with the CA of
    the servers' certificates; without it, plaintext. `patience_s`: seconds for which a server
    that is away or silent is waited for.

    Connects when first called. Methods raise the class of `dataserver.errors` that the server
    raised; only UNAVAILABLE is tried again, for `patience_s`. May be used by several threads,
    but not across a fork.
    """

    def __init__(
        self, endpoints: str, *, token: str | None = None, ca: str | Path | None = None, patience_s: float = 600.0
    ) -> None:
        settings = ConnectionSettings(
            endpoints=parse_endpoints(endpoints), token=token, ca=None if ca is None else Path(ca)
        )
        self._channels = Channels(settings)
        super().__init__(Calls(self._channels, patience_s))
        self._streams = Streams(self._channels, patience_s)

    def close(self) -> None:
        """Close all streams and connections. Idempotent."""
        self._streams.close()
        self._channels.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Runs

    def create_run(self, name: str, spec: RunSpec) -> runs.RunInfo:
        """Create a run, or find the run of that name with the same order.

        Another order raises `RunConflictError` with the fields that differ; another batch spec becomes the run's.
        """
        request = built(runs_pb2.CreateRunRequest, name=name, spec=run_spec_to_proto(spec))
        return runs.run_from_proto(self._calls.unary("RunService/CreateRun", request, runs_pb2.CreateRunResponse).run)

    def amend_run(self, run: str, first_step: int, order: OrderSpec) -> runs.RunInfo:
        """Append a stage: `order` decides from `first_step` on. The same stage again is no fault.

        Raises `RunConflictError` for another order under that first step, `PreconditionError` when that step is sealed
        already, or lies inside a window of steps that are packed together.
        """
        request = built(runs_pb2.AmendRunRequest, run=run, first_step=first_step, order=order_spec_to_proto(order))
        return runs.run_from_proto(self._calls.unary("RunService/AmendRun", request, runs_pb2.AmendRunResponse).run)

    def begin_attempt(
        self,
        run: str,
        *,
        resume: bool,
        cursor: Cursor | None = None,
        version: int | None = None,
        world_size: int,
        dp_world_size: int,
        batch: BatchSpec | None = None,
        holder: str,
        take_over: bool = False,
        wait_alive_s: float = 0.0,
    ) -> runs.AttemptInfo:
        """Begin an attempt: called by world rank 0, which hands the result to the other ranks.

        A resume names the checkpoint's `cursor`, which wins over the ledger, or a `version` that
        the ledger knows. `holder` is unique over all launches of the run. While another attempt
        is alive this raises `AttemptAliveError`, after waiting `wait_alive_s` seconds for its
        end; with `take_over` it is displaced instead.

        When a server goes away before it answers, the attempt that it may have begun is found by
        its holder and returned.
        """
        if resume and cursor is None and version is None:
            raise InvalidRequestError("a resume needs the checkpoint's cursor, or a version that the ledger knows")
        if cursor is not None and version not in {None, cursor.step}:
            raise InvalidRequestError(f"version {version} does not belong to a cursor at step {cursor.step}")
        request = built(
            runs_pb2.BeginAttemptRequest,
            run=run,
            mode=runs_pb2.BEGIN_MODE_RESUME if resume else runs_pb2.BEGIN_MODE_START,
            cursor=None if cursor is None else cursor_to_proto(cursor),
            version=cursor.step if cursor is not None else version or 0,
            world_size=world_size,
            dp_world_size=dp_world_size,
            batch=None if batch is None else batch_spec_to_proto(batch),
            holder=holder,
            take_over=take_over,
        )
        return runs.attempt_from_proto(begin_attempt(self._calls, request, wait_alive_s))

    def get_run(self, run: str) -> runs.RunInfo:
        """The run as it stands."""
        request = built(runs_pb2.GetRunRequest, run=run)
        return runs.run_from_proto(self._calls.unary("RunService/GetRun", request, runs_pb2.GetRunResponse).run)

    def list_runs(self) -> list[runs.RunInfo]:
        """All runs, by name."""
        request = runs_pb2.ListRunsRequest()
        answers = self._calls.pages("RunService/ListRuns", request, runs_pb2.ListRunsResponse)
        return [runs.run_from_proto(run) for answer in answers for run in answer.runs]

    def watch_run(self, run: str) -> Iterator[runs.RunInfo]:
        """The run as it stands now and after each change, for ever; close the generator to end it."""
        request = built(runs_pb2.WatchRunRequest, run=run)
        for answer in self._calls.watch("RunService/WatchRun", request, runs_pb2.WatchRunResponse):
            yield runs.run_from_proto(answer.run)

    def list_run_events(self, run: str) -> list[runs.RunEventInfo]:
        """What happened to the run, the oldest first."""
        request = built(runs_pb2.ListRunEventsRequest, run=run)
        answers = self._calls.pages("RunService/ListRunEvents", request, runs_pb2.ListRunEventsResponse)
        return [runs.event_from_proto(event) for answer in answers for event in answer.events]

    def delete_run(self, run: str) -> None:
        """Delete the run. Raises `AttemptAliveError` while an attempt is alive. Sent once, as `rewind_run` is."""
        self._find(run)
        request = built(runs_pb2.DeleteRunRequest, run=run)
        look = f"run {run!r} may be deleted: `dataserver run show {run}` tells"
        self._calls.unrepeated("RunService/DeleteRun", request, runs_pb2.DeleteRunResponse, look=look)

    # Cursors

    def get_cursor(self, run: str, version: int | None = None) -> runs.CursorInfo:
        """The cursor of a policy version that survives; of the last commit for None."""
        request = built(cursors_pb2.GetCursorRequest, run=run, version=version)
        answer = self._calls.unary("CursorService/GetCursor", request, cursors_pb2.GetCursorResponse)
        return runs.CursorInfo(cursor=cursor_from_proto(answer.cursor), checkpoint_uri=answer.checkpoint_uri)

    def list_cursors(self, run: str) -> list[runs.CommitInfo]:
        """All commits that survive, by step."""
        request = built(cursors_pb2.ListCursorsRequest, run=run)
        answers = self._calls.pages("CursorService/ListCursors", request, cursors_pb2.ListCursorsResponse)
        return [runs.commit_from_proto(commit) for answer in answers for commit in answer.commits]

    def commit_cursor(self, run: str, attempt: runs.AttemptInfo, cursor: Cursor, checkpoint_uri: str) -> Cursor:
        """Say that a checkpoint holds everything up to `cursor`; returns the committed cursor."""
        request = built(cursors_pb2.CommitCursorRequest, run=run, attempt=attempt.number, attempt_id=attempt.attempt_id)
        request.cursor.CopyFrom(cursor_to_proto(cursor))
        request.checkpoint_uri = checkpoint_uri
        answer = self._calls.unary("CursorService/CommitCursor", request, cursors_pb2.CommitCursorResponse)
        return cursor_from_proto(answer.committed)

    def rewind_run(self, run: str, version: int) -> runs.RewindInfo:
        """Go back to `version` and fence all attempts so far. Not repeated when its answer is lost, which raises."""
        self._find(run)
        request = built(cursors_pb2.RewindRunRequest, run=run, version=version)
        look = f"run {run!r} may be rewound to version {version}: `dataserver run show {run}` tells"
        answer = self._calls.unrepeated("CursorService/RewindRun", request, cursors_pb2.RewindRunResponse, look=look)
        return runs.RewindInfo(committed=cursor_from_proto(answer.committed), fenced_attempt=answer.fenced_attempt)

    def describe_step(
        self, run: str, step: int, *, dp_world_size: int | None = None, dp_rank: int | None = None
    ) -> runs.StepDescription:
        """Which samples a step holds, in which micro-batch, on which rank.

        `dp_world_size`: as the step was sealed for None. `dp_rank`: all ranks for None.
        """
        request = built(
            cursors_pb2.DescribeStepRequest,
            run=run,
            step=step,
            dp_world_size=0 if dp_world_size is None else dp_world_size,
            dp_rank=dp_rank,
        )
        return runs.step_from_proto(
            self._calls.unary("CursorService/DescribeStep", request, cursors_pb2.DescribeStepResponse)
        )

    # Micro-batches

    def stream(
        self,
        run: str,
        attempt: runs.AttemptInfo,
        *,
        world_rank: int,
        dp_rank: int,
        next_step: int,
        credits: int = DEFAULT_CREDITS,  # noqa: A002  # the word of the contract
    ) -> StepStream:
        """Stream the steps of one rank from `next_step` on (`attempt.base.step + 1` at first).

        `attempt`: what world rank 0's `begin_attempt` returned.
        `credits`: micro-batches that may be in flight or waiting. Ranks spread over the
        endpoints by `world_rank`.
        """
        return self._streams.of_attempt(
            run, attempt, world_rank=world_rank, dp_rank=dp_rank, next_step=next_step, credits=credits
        )

    def eval_stream(
        self,
        spec: EvalSpec,
        *,
        dp_rank: int = 0,
        dp_world_size: int = 1,
        credits: int = DEFAULT_CREDITS,  # noqa: A002  # the word of the contract
    ) -> EvalStream:
        """Stream a held-out store, every row once and in order, shared out among `dp_world_size` ranks.

        Needs no run, and changes none. Raises what the store or the spec is refused with at the first micro-batch.
        """
        return self._streams.of_held_out(spec, dp_rank=dp_rank, dp_world_size=dp_world_size, credits=credits)

    def _find(self, run: str) -> None:
        """Wait for a server that knows the run, by a call that may be repeated."""
        self._calls.unary("RunService/GetRun", runs_pb2.GetRunRequest(run=run), runs_pb2.GetRunResponse)
