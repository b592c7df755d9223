"""The client of vLLM's HTTP, against the fake engine that keeps vLLM's order."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import obstore
import pytest
import torch
from enginelab.sender import GlooSender, checksum_of, file_transfer, specs_of, write_files

from benchmarks.s3_server import S3Server
from orchestrator.engines.interface import Completion, SamplingParams, Transfer, VersionSpan
from orchestrator.engines.vllm_http import VllmEngine, VllmLimits
from orchestrator.errors import (
    EngineRefusedError,
    EngineUnavailableError,
    GenerationAbortedError,
    UpdateFailedError,
    WeightsMismatchError,
)
from orchestrator.testing import FakeEngineProcess, Fault, RunningFakeEngine, expected_tokens, running_fake_engine

WEIGHTS = {
    "embed.weight": torch.arange(24, dtype=torch.float32).reshape(6, 4),
    "layer.weight": torch.full((5, 7), 0.5, dtype=torch.bfloat16),
    "norm.weight": torch.ones(3, dtype=torch.float16),
}
OTHERS = {name: value + 1 for name, value in WEIGHTS.items()}


@pytest.fixture
def fake() -> Iterator[RunningFakeEngine]:
    with running_fake_engine(tensors=specs_of(WEIGHTS)) as running:
        yield running


@asynccontextmanager
async def engine_of(url: str, **limits: float) -> AsyncIterator[VllmEngine]:
    engine = VllmEngine("e0", url, limits=VllmLimits(**limits))
    try:
        yield engine
    finally:
        await engine.close()


async def sync(engine: VllmEngine, transfer: Transfer, label: str) -> str:
    await engine.pause()
    return await update(engine, transfer, label)


async def update(engine: VllmEngine, transfer: Transfer, label: str) -> str:
    await engine.begin_update(transfer)
    checksum = await engine.receive(transfer)
    await engine.finish_update(label)
    await engine.reset_prefix_cache()
    await engine.resume()
    return checksum


async def one(engine: VllmEngine, prompt: list[int], tokens: int = 8) -> Completion:
    return (await engine.generate(prompt, SamplingParams(max_tokens=tokens)))[0]


async def test_a_synced_engine_speaks_and_labels_by_its_new_weights(fake: RunningFakeEngine, tmp_path: Path) -> None:
    transfer = file_transfer(WEIGHTS, tmp_path / "w", bucket_bytes=64)
    write_files(WEIGHTS, transfer)
    async with engine_of(fake.url) as engine:
        assert (await one(engine, [65])).versions == (VersionSpan(label=None, tokens=8),)
        checksum = await sync(engine, transfer, "1.4")
        status = await engine.status()
        completion = await one(engine, [65])
    assert checksum == checksum_of(WEIGHTS)
    assert (status.healthy, status.paused, status.update_open, status.label) == (True, False, False, "1.4")
    assert completion.versions == (VersionSpan(label="1.4", tokens=8),)
    assert list(completion.token_ids) == expected_tokens(checksum, [65], 8)
    assert fake.engine.events("refused") == fake.engine.events("torn") == fake.engine.events("stale") == []


async def test_weights_come_as_objects_of_a_storage(
    fake: RunningFakeEngine, s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
    written = file_transfer(WEIGHTS, tmp_path / "w", bucket_bytes=64)
    write_files(WEIGHTS, written)
    transfer = replace(written, directory=f"s3://weights/{written.sync_id}")
    for path in sorted((tmp_path / "w").iterdir()):
        s3.put("weights", f"{written.sync_id}/{path.name}", path.read_bytes())
    async with engine_of(fake.url) as engine:
        assert await sync(engine, transfer, "1.4") == checksum_of(WEIGHTS)
        obstore.delete(s3.bucket("weights"), f"{written.sync_id}/weights.json")
        with pytest.raises(UpdateFailedError, match=r"weights\.json did not come within 0\.3 s"):
            await sync(engine, replace(transfer, deadline_s=0.3), "1.5")


async def test_a_storage_that_an_engine_cannot_read_at_all_is_refused_while_it_serves(
    fake: RunningFakeEngine, tmp_path: Path
) -> None:
    transfer = replace(file_transfer(WEIGHTS, tmp_path / "w"), directory="gopher://weights")
    async with engine_of(fake.url) as engine:
        with pytest.raises(WeightsMismatchError, match="'gopher://weights' is no URL of a storage"):
            await engine.compare(transfer)
        assert (await one(engine, [1])).finish_reason == "length"


async def test_weights_come_by_gloo_to_every_worker_of_an_engine(tmp_path: Path) -> None:
    sender = GlooSender(WEIGHTS, workers=2, bucket_bytes=64)
    with running_fake_engine(workers=2) as fake:
        async with engine_of(fake.url) as engine:
            assert (await engine.status()).workers == 2
            sending = sender.start()
            checksum = await sync(engine, sender.transfer, "1.1")
    sending.join()
    assert checksum == checksum_of(WEIGHTS)


async def test_a_sample_that_is_frozen_over_a_sync_tells_which_version_made_which_token(tmp_path: Path) -> None:
    transfer = file_transfer(WEIGHTS, tmp_path / "w")
    write_files(WEIGHTS, transfer)
    begun = threading.Event()

    def reply(_prompt: str, _label: str) -> str:
        # Called for each token: after the first the engine freezes, however fast it is.
        if not begun.is_set():
            fake.engine.pause()
            begun.set()
        return "abcdefghijkl" * 20

    with running_fake_engine(reply=reply) as fake:
        async with engine_of(fake.url) as engine:
            sample = asyncio.create_task(one(engine, [65], 200))
            await asyncio.to_thread(begun.wait)
            await update(engine, transfer, "1.4")
            completion = await sample
    assert [span.label for span in completion.versions] == [None, "1.4"]
    assert sum(span.tokens for span in completion.versions) == len(completion.token_ids) == 200
    assert fake.engine.events("torn") == []


async def test_other_names_are_refused_by_name_and_the_engine_is_as_it_was(
    fake: RunningFakeEngine, tmp_path: Path
) -> None:
    offered = {**WEIGHTS, "norm.weight": torch.ones(4, dtype=torch.float16)}
    async with engine_of(fake.url) as engine:
        await engine.pause()
        with pytest.raises(WeightsMismatchError, match=r"engine e0: begin_update: .*norm\.weight"):
            await engine.begin_update(file_transfer(offered, tmp_path / "w"))
        status = await engine.status()
        await engine.resume()
        completion = await one(engine, [1])
    assert (status.update_open, status.label) == (False, None)
    assert completion.finish_reason == "length"


async def test_an_engine_is_compared_with_what_is_announced_while_it_serves(
    fake: RunningFakeEngine, tmp_path: Path
) -> None:
    async with engine_of(fake.url) as engine:
        await engine.compare(file_transfer(WEIGHTS, tmp_path / "w"))
        offered = {**WEIGHTS, "norm.weight": torch.ones(4, dtype=torch.float16)}
        with pytest.raises(WeightsMismatchError, match=r"engine e0: compare: .*norm\.weight"):
            await engine.compare(file_transfer(offered, tmp_path / "w"))
        status = await engine.status()
        assert (status.paused, status.update_open) == (False, False)
        assert (await one(engine, [1])).finish_reason == "length"


async def test_nothing_is_read_before_all_is_written(fake: RunningFakeEngine, tmp_path: Path) -> None:
    transfer = file_transfer(WEIGHTS, tmp_path / "w", bucket_bytes=64, deadline_s=0.3)
    write_files(WEIGHTS, transfer)
    (tmp_path / "w" / "weights.json").unlink()
    async with engine_of(fake.url) as engine:
        with pytest.raises(UpdateFailedError, match=r"weights\.json did not come within 0\.3 s"):
            await sync(engine, transfer, "1.4")
    assert fake.engine.transfer.origins == []


@pytest.mark.parametrize("level", [1, 2])
async def test_an_engine_that_sleeps_is_neither_paused_nor_updated(
    fake: RunningFakeEngine, tmp_path: Path, level: int
) -> None:
    fake.engine.sleep(level)
    async with engine_of(fake.url) as engine:
        status = await engine.status()
        assert (status.healthy, status.paused) == (True, True)
        with pytest.raises(EngineRefusedError, match="paused or asleep already"):
            await engine.pause()
        with pytest.raises(UpdateFailedError, match="sleeps"):
            await engine.begin_update(file_transfer(WEIGHTS, tmp_path / "w"))
        fake.engine.wake_up()
        await one(engine, [1])
    assert bool(fake.engine.events("torn")) == (level == 2)


async def test_an_update_of_an_engine_that_generates_is_refused(fake: RunningFakeEngine, tmp_path: Path) -> None:
    async with engine_of(fake.url) as engine:
        with pytest.raises(EngineRefusedError, match="not paused"):
            await engine.begin_update(file_transfer(WEIGHTS, tmp_path / "w"))


@pytest.mark.parametrize("call", ["update", "finish"])
async def test_an_update_that_fails_stays_open_and_is_not_resumed(
    fake: RunningFakeEngine, tmp_path: Path, call: str
) -> None:
    transfer = file_transfer(WEIGHTS, tmp_path / "w")
    write_files(WEIGHTS, transfer)
    fake.engine.fault(Fault(call=call, action="http_500"))
    async with engine_of(fake.url) as engine:
        with pytest.raises(UpdateFailedError, match="http_500"):
            await sync(engine, transfer, "1.4")
        assert (await engine.status()).update_open
        with pytest.raises(EngineRefusedError, match="restart it"):
            await engine.resume()


async def test_a_trainer_that_dies_in_the_middle_fails_the_update_before_its_deadline(fake: RunningFakeEngine) -> None:
    sender = GlooSender(WEIGHTS, workers=1, bucket_bytes=64, deadline_s=60)
    async with engine_of(fake.url) as engine:
        sending = sender.start(stop_after=1)
        async with asyncio.timeout(55):
            with pytest.raises(UpdateFailedError, match="was lost"):
                await sync(engine, sender.transfer, "1.4")
    sending.join()


async def test_files_that_never_come_fail_the_update_at_its_deadline(fake: RunningFakeEngine, tmp_path: Path) -> None:
    transfer = file_transfer(WEIGHTS, tmp_path / "w", bucket_bytes=64, deadline_s=2)
    write_files(WEIGHTS, transfer, stop_after=1)
    async with engine_of(fake.url) as engine:
        with pytest.raises(UpdateFailedError, match=r"weights\.json did not come within 2 s"):
            await sync(engine, transfer, "1.4")


async def test_what_is_aborted_ends_with_an_error_and_not_while_it_is_paused(tmp_path: Path) -> None:
    begun = threading.Event()

    def reply(_prompt: str, _label: str) -> str:
        begun.set()
        return "a" * 10_000

    with running_fake_engine(token_s=0.01, reply=reply) as fake:
        async with engine_of(fake.url) as engine:
            sample = asyncio.create_task(one(engine, [65], 10_000))
            await asyncio.to_thread(begun.wait)
            await engine.pause()
            with pytest.raises(EngineRefusedError, match="before the pause"):
                await engine.abort_requests()
            await engine.resume()
            assert await engine.abort_requests() == 1
            with pytest.raises(GenerationAbortedError, match="abort"):
                await sample


async def test_no_answer_in_time_is_an_error_that_names_the_call(fake: RunningFakeEngine) -> None:
    fake.engine.fault(Fault(call="generate", action="hang"))
    async with engine_of(fake.url, generate_s=0.2) as engine:
        with pytest.raises(EngineUnavailableError, match=r"engine e0: POST .*/inference/v1/generate: no answer within"):
            await one(engine, [1])


async def test_calls_of_an_update_are_never_repeated(fake: RunningFakeEngine, tmp_path: Path) -> None:
    fake.engine.fault(Fault(call="start", action="hang", after=True))
    async with engine_of(fake.url, control_s=2) as engine:
        await engine.pause()
        with pytest.raises(UpdateFailedError, match="no answer"):
            await engine.begin_update(file_transfer(WEIGHTS, tmp_path / "w"))
    assert fake.engine.events("refused") == []


async def test_an_idle_connection_that_the_engine_cut_is_made_anew(fake: RunningFakeEngine) -> None:
    async with engine_of(fake.url) as engine:
        assert (await engine.status()).healthy
        fake.restart()
        assert (await engine.status()).healthy
        fake.kill()
        status = await engine.status()
    assert not status.healthy
    assert "no answer" in status.detail


async def test_text_and_messages_are_tokenized_by_the_engine(fake: RunningFakeEngine) -> None:
    async with engine_of(fake.url) as engine:
        assert await engine.tokenize("hi") == (104, 105)
        chat = await engine.tokenize([{"role": "user", "content": "hi"}])
    assert "".join(map(chr, chat)) == "<user>hi</user><assistant>"


async def test_an_engine_process_that_dies_in_an_update_comes_back_by_its_command(tmp_path: Path) -> None:
    transfer = file_transfer(WEIGHTS, tmp_path / "w")
    write_files(WEIGHTS, transfer)
    with FakeEngineProcess(tmp_path / "e0") as fake:
        engine = VllmEngine("e0", fake.url, restart=fake.restart_command)
        fake.fault(Fault(call="update", action="die", after_tensors=2))
        first = fake.pid
        with pytest.raises(UpdateFailedError, match="no answer"):
            await sync(engine, transfer, "1.4")
        await engine.restart()
        assert fake.pid != first
        assert await sync(engine, transfer, "1.4") == checksum_of(WEIGHTS)
        await engine.close()
        assert [event["label"] for event in fake.events("synced")] == ["1.4"]


async def test_a_call_of_several_requests_ends_where_the_leave_to_call_does(
    fake: RunningFakeEngine, tmp_path: Path
) -> None:
    transfer = file_transfer(WEIGHTS, tmp_path / "w")
    write_files(WEIGHTS, transfer)
    asked: list[int] = []
    most = 100
    engine = VllmEngine("e0", fake.url, restart=["false"], may_call=lambda: asked.append(1) or len(asked) <= most)  # type: ignore[func-returns-value]
    await engine.pause()
    asked.clear()
    await engine.begin_update(transfer)
    before_the_last = len(asked) - 1
    await engine.receive(transfer)
    await engine.finish_update("1.4")
    asked.clear()
    most = before_the_last
    with pytest.raises(UpdateFailedError, match="the orchestrator's lease is over"):
        await engine.begin_update(transfer)
    most = 0
    for call in (engine.pause, engine.resume, engine.abort_requests, engine.reset_prefix_cache, engine.restart):
        with pytest.raises(EngineUnavailableError, match="the orchestrator's lease is over"):
            await call()
    for update in (engine.receive(transfer), engine.finish_update("1.5")):
        with pytest.raises(UpdateFailedError, match="the orchestrator's lease is over"):
            await update
    await engine.close()
    async with engine_of(fake.url) as looking:
        status = await looking.status()
    assert (status.paused, status.update_open, status.label) == (True, False, "1.4")


async def test_an_engine_that_answers_with_something_unknown_is_unhealthy(fake: RunningFakeEngine) -> None:
    fake.engine.workers = None  # type: ignore[assignment]
    async with engine_of(fake.url) as engine:
        status = await engine.status()
    assert not status.healthy
    assert "GET /get_world_size: answers with something unknown, None" in status.detail


async def test_an_engine_without_a_restart_command_says_so(fake: RunningFakeEngine) -> None:
    async with engine_of(fake.url) as engine:
        with pytest.raises(EngineUnavailableError, match="restart it by hand"):
            await engine.restart()
