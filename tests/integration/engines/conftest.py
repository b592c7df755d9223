"""The tests here share the package `enginelab`, the trainer's laboratory, and real engines that start once for all."""

import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from orchestrator.engines.vllm_http import VllmEngine

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "trainer")]

if TYPE_CHECKING:
    from enginelab.vllm_server import Lab

# Two engines of a model whose embeddings are tied; one of a model with a head of its own, on two workers.
LABS = {
    "qwen3-tied-2-engines": ("tiny_qwen3", True, 2, ()),
    "llama-untied-2-workers": ("tiny_llama", False, 1, ("--tensor-parallel-size=2",)),
}


@pytest.fixture(scope="session", params=LABS)
def lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator["Lab"]:
    # These bring torch and transformers, which other tests here do without.
    from enginelab import models
    from enginelab.vllm_server import Lab, running_vllm

    make, tied, count, arguments = LABS[request.param]
    directory = tmp_path_factory.mktemp(request.param)
    model = getattr(models, make)(directory / "model", tied=tied)
    with running_vllm(model.directory, directory, count, arguments) as servers:
        yield Lab(model, servers, directory)


@pytest_asyncio.fixture
async def engines(lab: "Lab") -> AsyncIterator[list[VllmEngine]]:
    async with AsyncExitStack() as stack:
        found = [VllmEngine(f"e{number}", server.url) for number, server in enumerate(lab.servers)]
        for engine in found:
            stack.push_async_callback(engine.close)
        yield found
