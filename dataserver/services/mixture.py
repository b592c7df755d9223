"""How a run keeps to the weights of its sources, up to its last sealed step."""

from dataserver.ledger.interface import Ledger, Run
from dataserver.planning.stages import entered, place_of
from dataserver.sampling.order import Place
from dataserver.streaming.contexts import RunContexts
from dataserver.streaming.stage_context import StageContext
from dataserver.streaming.threads import Threads
from dataserver.v1 import run_pb2


async def mixture(run: Run, *, contexts: RunContexts, ledger: Ledger, threads: Threads) -> run_pb2.Mixture | None:
    """The mixture of the stage in which the last sealed step stands; None where nothing was drawn by weight yet.

    Raises `VersionNotFoundError` where the ledger does not know how the stage began, and as `RunContexts.of_stages`.
    """
    if run.sealed is None:
        return None
    number = run.sealed.stage
    if not run.stages[number].stage.order.weighted:
        return None
    context = await contexts.of_stages([stage.stage for stage in run.stages])
    stage = context.stages[number]
    begin = Place()
    if number:
        before, _ = await threads.ledger(ledger.cursor_at, run.name, stage.planned.first_step - 1)
        begin = place_of(entered(before, [each.planned for each in context.stages]))
    return mixture_to_proto(number, stage, begin, place_of(run.sealed))


def mixture_to_proto(number: int, stage: StageContext, begin: Place, end: Place) -> run_pb2.Mixture | None:
    """What stage `number` drew of each source from `begin` to `end`, beside what its weights say; None for nothing."""
    sources = stage.planned.order.draws(begin, end)
    draws = sum(each.draws for each in sources)
    if not draws:
        return None
    tokens = stage.tokens_of([each.target for each in sources])
    total = sum(tokens)
    return run_pb2.Mixture(
        stage=number,
        draws=draws,
        sources=[
            run_pb2.SourceShare(
                store=each.store,
                draws=each.draws,
                share=each.draws / draws,
                target_share=each.target / draws,
                share_error=each.error / draws,
                target_token_share=tokens[source] / total if tokens else None,
            )
            for source, each in enumerate(sources)
        ],
    )
