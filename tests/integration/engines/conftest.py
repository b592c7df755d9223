"""The tests here share the package `enginelab`, two other laboratories, and real engines that start once for all."""

import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from benchmarks.s3_server import S3Server
from orchestrator.engines.vllm_http import VllmEngine

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "trainer"), str(HERE.parent / "orchestrator")]

if TYPE_CHECKING:
    from enginelab.vllm_server import Lab

# Two engines each: of a model whose embeddings are tied; and of one with a head of its own, on two workers that share
# its layers, and on two that have all of them.
LABS = {
    "qwen3-tied": ("tiny_qwen3", True, ((), ())),
    "llama-untied": ("tiny_llama", False, (("--tensor-parallel-size=2",), ("--data-parallel-size=2",))),
}


@pytest.fixture(scope="session", params=LABS)
def lab(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, s3_server: S3Server
) -> Iterator["Lab"]:
    # These bring torch and transformers, which other tests here do without.
    from enginelab import models
    from enginelab.vllm_server import Lab, running_vllm

    make, tied, arguments = LABS[request.param]
    directory = tmp_path_factory.mktemp(request.param)
    model = getattr(models, make)(directory / "model", tied=tied)
    with running_vllm(model.directory, directory, arguments, s3_server.whole_environment) as servers:
        yield Lab(model, servers, directory)


@pytest_asyncio.fixture
async def engines(lab: "Lab") -> AsyncIterator[list[VllmEngine]]:
    async with AsyncExitStack() as stack:
        found = [VllmEngine(f"e{number}", server.url) for number, server in enumerate(lab.servers)]
        for engine in found:
            stack.push_async_callback(engine.close)
        yield found
