"""From the ranks of a real trainer into a real vLLM: whatever the way and however many ranks hold the weights."""

import asyncio
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

from dataserver.testing import attempt_info
from dataserver.weight_sync import OrchestratorAddress, PolicyVersion
from orchestrator.engines.interface import SamplingParams
from orchestrator.engines.vllm_http import VllmEngine
from trainer.config import TrainerConfig
from trainer.launch import World

pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.timeout(900)]

PROMPT = [place % (VOCABULARY - 3) + 3 for place in range(0, 140 * 7, 7)]
GREEDY = SamplingParams(max_tokens=12, temperature=0.0, logprobs=True)


def hand_over_twice(world: World, config: TrainerConfig, address: str) -> tuple[list[str], dict[str, np.ndarray]]:
    """On each rank: two versions, each with other weights; tells what became of them and what was sent last."""
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
    for number in range(2):
        with torch.no_grad():
            for weight in model.parameters():
                weight.mul_(1.25)
        version = PolicyVersion(attempt=1, number=number)
        handover.hand_over(version, OrchestratorAddress(epoch=1, address=address))
    handover.finish()
    return [f"{result.outcome.value} {result.detail}" for result, _ in handover.settled()], state_of(model, sent.dtype)


def on_rank(world: World, *arguments: Any) -> tuple[list[str], dict[str, np.ndarray]]:
    return hand_over_twice(world, *arguments)


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("transport", ["filesystem", "gloo"])
async def test_engines_compute_what_the_ranks_of_a_trainer_sent(
    lab: Lab, engines: list[VllmEngine], tmp_path: Path, transport: str, ranks: int
) -> None:
    weights = {"transport": transport, "bucket_bytes": 30_000}
    if transport == "filesystem":
        weights["directory"] = str(tmp_path / "weights")
    config = job_config(tmp_path, model={"path": str(lab.model.directory), "config": None}, weights=weights)
    async with running_peer(list(engines)) as address:
        told = await asyncio.to_thread(on_ranks, ranks, on_rank, config, address)
    outcomes, sent = told[0]
    assert [outcome.split()[0] for outcome in outcomes] == ["landed", "landed"], outcomes
    with torch.no_grad():
        for name, value in lab.model.module.named_parameters():
            value.copy_(torch.from_numpy(sent[name]).view(torch.float32).reshape(value.shape))
    for engine in engines:
        completion = (await engine.generate(PROMPT, GREEDY))[0]
        assert completion.versions[0].label == f"{attempt_info().number}.1"
        assert_computes_as(lab.model, PROMPT, completion)
