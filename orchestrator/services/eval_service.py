"""EvalService: evals, for people and programs."""

from collections.abc import Callable

from dataserver.errors import InvalidRequestError, UnavailableError
from dataserver.hosting import pages
from dataserver.hosting.call import Call
from dataserver.v1.policy_version_pb2 import PolicyVersion as PolicyVersionMessage
from dataserver.weight_sync import PolicyVersion
from dataserver.wire.times import to_timestamp
from orchestrator.evals.director import EvalDirector
from orchestrator.results import EvalResult, EvalState
from orchestrator.v1 import eval_service_pb2 as pb2
from orchestrator.v1.eval_service_pb2_grpc import EvalServiceServicer

STATES = {
    EvalState.QUEUED: pb2.EVAL_STATE_QUEUED,
    EvalState.RUNNING: pb2.EVAL_STATE_RUNNING,
    EvalState.DONE: pb2.EVAL_STATE_DONE,
    EvalState.FAILED: pb2.EVAL_STATE_FAILED,
    EvalState.MISSED: pb2.EVAL_STATE_MISSED,
}
DEFAULT_PAGE_SIZE = 100
LARGEST_PAGE_SIZE = 1000


class EvalService(EvalServiceServicer):
    """`director` gives the one of the lease that lives, None without a lease."""

    def __init__(self, director: Callable[[], EvalDirector | None]) -> None:
        self._director = director

    async def TriggerEval(self, request: pb2.TriggerEvalRequest, context: Call) -> pb2.TriggerEvalResponse:
        """Ask for an eval."""
        number = request.version if request.HasField("version") else None
        return pb2.TriggerEvalResponse(eval=eval_to_proto(await self._living().trigger(request.name, number)))

    async def GetEval(self, request: pb2.GetEvalRequest, context: Call) -> pb2.GetEvalResponse:
        """Show one eval."""
        return pb2.GetEvalResponse(eval=eval_to_proto(self._living().book.find(request.eval_id)))

    async def ListEvals(self, request: pb2.ListEvalsRequest, context: Call) -> pb2.ListEvalsResponse:
        """List evals, the newest first. A page begins behind the eval that its token names."""
        if not 0 <= request.page_size <= LARGEST_PAGE_SIZE:
            raise InvalidRequestError(f"page_size = {request.page_size}: give 0 to {LARGEST_PAGE_SIZE}")
        size = request.page_size or DEFAULT_PAGE_SIZE
        views = self._living().book.views(request.name)
        after = pages.page_after("evals", request.page_token, "")
        begin = next((place for place, view in enumerate(views, start=1) if view.eval_id == after), 0)
        if after and not begin:
            raise InvalidRequestError(f"page_token {request.page_token!r:.64}: its eval is gone; begin anew")
        page = views[begin : begin + size]
        more = len(views) > begin + size
        return pb2.ListEvalsResponse(
            evals=map(eval_to_proto, page),
            next_page_token=pages.page_token("evals", page[-1].eval_id) if more else "",
        )

    async def WatchEvals(self, request: pb2.WatchEvalsRequest, context: Call) -> None:
        """Send an eval whenever it changes, beginning with all that are there, until the lease is over."""
        async for view in self._living().book.watch(request.name):
            await context.write(pb2.WatchEvalsResponse(eval=eval_to_proto(view)))
        raise UnavailableError(
            "this orchestrator's lease is over, or it ends: watch again, here or where the next one is"
        )

    def _living(self) -> EvalDirector:
        director = self._director()
        if director is None:
            raise UnavailableError("this orchestrator has no evals to tell of: it does not hold the run's lease now")
        return director


def eval_to_proto(view: EvalResult) -> pb2.Eval:
    """An eval as others see it."""
    message = pb2.Eval(
        eval_id=view.eval_id,
        run=view.run,
        name=view.name,
        version=_version(view.version),
        state=STATES[view.state],
        samples=view.samples,
        scored=view.scored,
        figures=view.figures,
        create_time=to_timestamp(view.create_time),
        detail=view.detail,
    )
    for part in view.version_tokens:
        tokens = message.version_tokens.add(tokens=part.tokens)
        if part.version is not None:
            tokens.version.CopyFrom(_version(part.version))
    if view.end_time is not None:
        message.end_time.CopyFrom(to_timestamp(view.end_time))
    return message


def _version(version: PolicyVersion) -> PolicyVersionMessage:
    return PolicyVersionMessage(attempt=version.attempt, number=version.number)
