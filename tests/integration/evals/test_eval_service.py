"""Evals over gRPC: triggered, shown, listed by pages, watched."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from evallab.run import LIMIT_S, Run, a_run, eval_config, version, write_prompts
from prometheus_client import CollectorRegistry, Counter

from dataserver.hosting.guard import Guard
from orchestrator.evals.director import EvalDirector
from orchestrator.services.eval_service import EvalService
from orchestrator.v1 import eval_service_pb2 as pb2
from orchestrator.v1.eval_service_pb2_grpc import EvalServiceStub, add_EvalServiceServicer_to_server
from orchestrator.wants import Wants


@asynccontextmanager
async def served(director: EvalDirector | None) -> AsyncIterator[EvalServiceStub]:
    requests = Counter("requests", "", ["method", "status"], registry=CollectorRegistry())
    server = grpc.aio.server(interceptors=[Guard(requests, "orchestrator.v1")])
    add_EvalServiceServicer_to_server(EvalService(lambda: director), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        try:
            yield EvalServiceStub(channel)
        finally:
            await server.stop(0)


@asynccontextmanager
async def a_served_run(folder: Path) -> AsyncIterator[tuple[Run, EvalServiceStub]]:
    prompts = write_prompts(folder / "prompts.jsonl", 2)
    with a_run(folder, [eval_config(prompts)]) as run:
        run.look()
        await run.until(lambda: run.wanted != Wants())
        async with served(run.director) as stub:
            yield run, stub


async def test_an_eval_is_triggered_shown_and_listed_with_its_figures_and_versions(tmp_path):
    async with a_served_run(tmp_path) as (run, stub):
        run.land(version(0))
        await run.until(lambda: bool(run.measured))
        answer = await stub.TriggerEval(pb2.TriggerEvalRequest(name="reverse", version=3))
        assert (answer.eval.state, answer.eval.version.number) == (pb2.EVAL_STATE_QUEUED, 3)
        assert not answer.eval.HasField("end_time")
        for number in (3, 5):
            run.step(number)
            run.land(version(number))
            await run.until(lambda: not run.director.book.running and not run.director.book.queued)
        shown = (await stub.GetEval(pb2.GetEvalRequest(eval_id="chat/1.3/reverse"))).eval
        assert (shown.state, shown.samples, shown.scored) == (pb2.EVAL_STATE_DONE, 2, 2)
        assert shown.figures["mean"] == 1.0
        [tokens] = shown.version_tokens
        assert (tokens.version.attempt, tokens.version.number, tokens.tokens) == (1, 3, 12)
        assert shown.end_time.seconds >= shown.create_time.seconds > 0
        first = await stub.ListEvals(pb2.ListEvalsRequest(page_size=2))
        rest = await stub.ListEvals(pb2.ListEvalsRequest(page_size=2, page_token=first.next_page_token))
        assert [each.eval_id for each in [*first.evals, *rest.evals]] == [
            "chat/1.5/reverse",
            "chat/1.3/reverse",
            "chat/1.0/reverse",
        ]
        assert rest.next_page_token == ""
        assert not (await stub.ListEvals(pb2.ListEvalsRequest(name="other"))).evals


async def test_who_watches_sees_an_eval_through_its_life(tmp_path):
    async with a_served_run(tmp_path) as (run, stub):
        states = []
        run.engines[0].gate.clear()
        async for answer in stub.WatchEvals(pb2.WatchEvalsRequest()):
            states.append(answer.eval.state)
            if answer.eval.state == pb2.EVAL_STATE_QUEUED:
                run.land(version(0))
            if answer.eval.state == pb2.EVAL_STATE_RUNNING:
                run.engines[0].gate.set()
            if answer.eval.state == pb2.EVAL_STATE_DONE:
                break
        assert list(dict.fromkeys(states)) == [
            pb2.EVAL_STATE_QUEUED,
            pb2.EVAL_STATE_RUNNING,
            pb2.EVAL_STATE_DONE,
        ]


async def test_a_watch_ends_with_the_lease_under_which_it_began(tmp_path):
    async with a_served_run(tmp_path) as (run, stub), asyncio.timeout(LIMIT_S):
        watch = stub.WatchEvals(pb2.WatchEvalsRequest())
        assert (await watch.read()).eval.state == pb2.EVAL_STATE_QUEUED
        await run.director.close()
        with pytest.raises(grpc.aio.AioRpcError, match="watch again") as ended:
            await watch.read()
        assert ended.value.code() is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize(
    ("method", "request_", "code", "told"),
    [
        ("TriggerEval", pb2.TriggerEvalRequest(name="no"), grpc.StatusCode.INVALID_ARGUMENT, "has: reverse"),
        ("GetEval", pb2.GetEvalRequest(eval_id="chat/1.9/reverse"), grpc.StatusCode.OUT_OF_RANGE, "RUN/ATTEMPT.VERS"),
        ("GetEval", pb2.GetEvalRequest(eval_id="nonsense"), grpc.StatusCode.OUT_OF_RANGE, "'nonsense'"),
        ("ListEvals", pb2.ListEvalsRequest(page_size=1001), grpc.StatusCode.INVALID_ARGUMENT, "give 0 to 1000"),
        ("ListEvals", pb2.ListEvalsRequest(page_token="x"), grpc.StatusCode.INVALID_ARGUMENT, "page_token 'x'"),  # noqa: S106
    ],
)
async def test_what_makes_no_sense_is_refused_with_the_reason(tmp_path, method, request_, code, told):
    async with a_served_run(tmp_path) as (_run, stub):
        with pytest.raises(grpc.aio.AioRpcError) as refusal:
            await getattr(stub, method)(request_)
        assert refusal.value.code() is code
        assert told in refusal.value.details()


async def test_without_the_lease_there_is_nothing_to_tell():
    async with served(None) as stub:
        with pytest.raises(grpc.aio.AioRpcError, match="does not hold the run's lease"):
            await stub.ListEvals(pb2.ListEvalsRequest())
