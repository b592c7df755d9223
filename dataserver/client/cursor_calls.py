"""What the data server does about cursors and commits."""

from dataserver.client.calls import Calls
from dataserver.client.run_calls import find_run
from dataserver.cursor import Cursor
from dataserver.v1 import cursor_service_pb2 as cursors_pb2
from dataserver.wire import runs
from dataserver.wire.build import built
from dataserver.wire.messages import cursor_from_proto, cursor_to_proto


class CursorCalls:
    """The part of a client that is about cursors."""

    _calls: Calls

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
        find_run(self._calls, run)
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
