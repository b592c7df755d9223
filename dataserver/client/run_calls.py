"""What the data server does about runs and their attempts."""

from collections.abc import Iterator

from dataserver.client.begin import begin_attempt
from dataserver.client.calls import ORDER_DEADLINE_S, Calls
from dataserver.cursor import Cursor
from dataserver.errors import InvalidRequestError
from dataserver.run_spec import BatchSpec, OrderSpec, RunSpec
from dataserver.v1 import run_service_pb2 as runs_pb2
from dataserver.wire import runs
from dataserver.wire.build import built
from dataserver.wire.messages import (
    batch_spec_to_proto,
    cursor_to_proto,
    order_spec_to_proto,
    run_spec_to_proto,
)


class RunCalls:
    """The part of a client that is about runs."""

    _calls: Calls

    def create_run(self, name: str, spec: RunSpec) -> runs.RunInfo:
        """Create a run, or find the run of that name with the same order.

        Another order raises `RunConflictError` with the fields that differ; another batch spec becomes the run's.
        """
        request = built(runs_pb2.CreateRunRequest, name=name, spec=run_spec_to_proto(spec))
        answer = self._calls.unary(
            "RunService/CreateRun", request, runs_pb2.CreateRunResponse, deadline_s=ORDER_DEADLINE_S
        )
        return runs.run_from_proto(answer.run)

    def amend_run(self, run: str, first_step: int, order: OrderSpec) -> runs.RunInfo:
        """Append a stage: `order` decides from `first_step` on. The same stage again is no fault.

        Raises `RunConflictError` for another order under that first step, `PreconditionError` when that step is sealed
        already, or lies inside a window of steps that are packed together.
        """
        request = built(runs_pb2.AmendRunRequest, run=run, first_step=first_step, order=order_spec_to_proto(order))
        answer = self._calls.unary(
            "RunService/AmendRun", request, runs_pb2.AmendRunResponse, deadline_s=ORDER_DEADLINE_S
        )
        return runs.run_from_proto(answer.run)

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
        find_run(self._calls, run)
        request = built(runs_pb2.DeleteRunRequest, run=run)
        look = f"run {run!r} may be deleted: `dataserver run show {run}` tells"
        self._calls.unrepeated("RunService/DeleteRun", request, runs_pb2.DeleteRunResponse, look=look)


def find_run(calls: Calls, run: str) -> None:
    """Wait for a server that knows the run, by a call that may be repeated."""
    calls.unary("RunService/GetRun", runs_pb2.GetRunRequest(run=run), runs_pb2.GetRunResponse)
