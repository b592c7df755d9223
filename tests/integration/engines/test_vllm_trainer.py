"""From the ranks of a real trainer into a real vLLM: whatever the way and however many ranks hold the weights."""

import asyncio
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from enginelab.models import VOCABULARY, assert_computes_as
from enginelab.peer import running_peer
from enginelab.vllm_server import Lab
from trainerlab.handovers import state_of
from trainerlab.jobs import RUN, job_config
from trainerlab.ranks import on_ranks

from benchmarks.s3_server import S3Server
from dataserver.testing import attempt_info
from dataserver.weight_sync import OrchestratorAddress, PolicyVersion
from orchestrator.engines.interface import Completion, SamplingParams
from orchestrator.engines.vllm_http import VllmEngine
from trainer.config import TrainerConfig
from trainer.launch import World

pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.timeout(900)]

PROMPT = [place % (VOCABULARY - 3) + 3 for place in range(0, 140 * 7, 7)]
GREEDY = SamplingParams(max_tokens=12, temperature=0.0, logprobs=True)


Sent = dict[str, np.ndarray]


def hand_over_twice(world: World, config: TrainerConfig, address: str) -> tuple[list[str], list[Sent]]:
    """On each rank: two versions, each with other weights; tells what became of them and what was sent."""
    from trainer.train import build
    from trainer.weights.handover import Handover
    from trainer.weights.lead import Lead
    from trainer.weights.outgoing import outgoing
    from trainer.weights.reports import ReportThread
    from trainer.weights.underway import Underway
    from trainer.weights.ways import transport_maker

    assert config.weights is not None
    model, _ = build(config, world, None)
    sent = outgoing(model, config.weights, config.model.dtype)
    make = transport_maker(config.weights, world, sent)
    underway, lead = Underway(), None
    if world.is_first:
        lead = Lead(
            config=config.weights, run=RUN, attempt=attempt_info(), outgoing=sent, transport_of=make, underway=underway,
            reports=ReportThread(lambda _result: None), trainer_address="127.0.0.1:1",
        )  # fmt: skip
    handover = Handover(world=world, outgoing=sent, transport_of=make, underway=underway, lead=lead)
    states = []
    for number in range(2):
        with torch.no_grad():
            for weight in model.parameters():
                weight.mul_(1.25)
        states.append(state_of(model, sent.dtype))
        version = PolicyVersion(attempt=1, number=number)
        handover.hand_over(version, OrchestratorAddress(epoch=1, address=address))
    handover.finish()
    return [f"{result.outcome.value} {result.detail}" for result, _ in handover.settled()], states


def on_rank(world: World, environment: dict[str, str], *arguments: Any) -> tuple[list[str], list[Sent]]:
    os.environ.update(environment)
    return hand_over_twice(world, *arguments)


@pytest.mark.parametrize(
    ("transport", "ranks"), [("filesystem", 1), ("filesystem", 2), ("gloo", 1), ("gloo", 2), ("objects", 2)]
)
async def test_one_engine_and_then_two_compute_what_the_ranks_of_a_trainer_sent(
    lab: Lab, engines: list[VllmEngine], s3_server: S3Server, tmp_path: Path, transport: str, ranks: int
) -> None:
    ways = {
        "filesystem": {"transport": "filesystem", "directory": str(tmp_path / "weights")},
        "objects": {"transport": "filesystem", "directory": f"s3://weights/{tmp_path.name}"},
        "gloo": {"transport": "gloo"},
    }
    weights = {"bucket_bytes": 30_000, **ways[transport]}
    # What the trainer asks first is what lies there, and a storage that has no such bucket says so.
    s3_server.put("weights", "made", b"")
    config = job_config(tmp_path, model={"path": str(lab.model.directory), "config": None}, weights=weights)
    plan = [engines[:1], engines]
    answers: list[list[Completion]] = []

    async def ask(number: int) -> None:
        # Two at once, so that of an engine's replicas none is left out.
        asked = (engine.generate(PROMPT, GREEDY) for engine in plan[number] for _ in range(2))
        answers.append([completion for [completion] in await asyncio.gather(*asked)])

    async with running_peer(plan, ask) as address:
        told = await asyncio.to_thread(on_ranks, ranks, on_rank, s3_server.whole_environment, config, address)
    outcomes, sent = told[0]
    assert [outcome.split()[0] for outcome in outcomes] == ["landed", "landed"], outcomes
    assert [len(of_version) for of_version in answers] == [2, 4]
    for number, (state, of_version) in enumerate(zip(sent, answers, strict=True)):
        take_state(lab, state)
        for completion in of_version:
            assert [span.label for span in completion.versions] == [f"{attempt_info().number}.{number}"]
            assert_computes_as(lab.model, PROMPT, completion)


def take_state(lab: Lab, state: Sent) -> None:
    with torch.no_grad():
        for name, value in lab.model.module.named_parameters():
            value.copy_(torch.from_numpy(state[name]).view(torch.float32).reshape(value.shape))
