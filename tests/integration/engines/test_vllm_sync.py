"""Weights into a real vLLM, by each way that runs on a CPU: afterwards it computes what the trainer computes."""

import asyncio
import random

import pytest
import torch
from enginelab.models import VOCABULARY, assert_computes_as
from enginelab.sender import GlooSender, checksum_of, file_transfer, write_files
from enginelab.vllm_server import Lab

from orchestrator.engines.interface import Completion, SamplingParams, Transfer, VersionSpan
from orchestrator.engines.vllm_http import VllmEngine
from orchestrator.errors import EngineRefusedError, UpdateFailedError, WeightsMismatchError

pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.timeout(900)]

BUCKET_BYTES = 30_000
# More than a block of vLLM's prefix cache on CPUs.
LONG_PROMPT = random.Random(5).choices(range(3, VOCABULARY), k=140)
GREEDY = SamplingParams(max_tokens=12, temperature=0.0, logprobs=True)
# So many that making them takes many times as long as it takes to begin.
LONG_SAMPLE = SamplingParams(max_tokens=1000, temperature=0.0, logprobs=True)


async def take(engine: VllmEngine, transfer: Transfer, label: str) -> str:
    await engine.compare(transfer)
    await engine.pause()
    return await update(engine, transfer, label)


async def update(engine: VllmEngine, transfer: Transfer, label: str) -> str:
    await engine.begin_update(transfer)
    checksum = await engine.receive(transfer)
    await engine.finish_update(label)
    await engine.reset_prefix_cache()
    await engine.resume()
    return checksum


async def sync_by_files(lab: Lab, engines: list[VllmEngine], seed: int, label: str) -> list[str]:
    transfer = files_of_next(lab, seed, label)
    return await asyncio.gather(*(take(engine, transfer, label) for engine in engines))


def files_of_next(lab: Lab, seed: int, label: str) -> Transfer:
    weights = lab.model.next_version(seed)
    transfer = file_transfer(weights, lab.directory / label, bucket_bytes=BUCKET_BYTES, deadline_s=120)
    write_files(weights, transfer)
    return transfer


async def one(engine: VllmEngine, prompt: list[int], sampling: SamplingParams = GREEDY) -> Completion:
    return (await engine.generate(prompt, sampling))[0]


async def test_after_a_sync_by_files_engines_compute_what_the_trainer_computes(
    lab: Lab, engines: list[VllmEngine]
) -> None:
    before = [await one(engine, LONG_PROMPT) for engine in engines]
    checksums = await sync_by_files(lab, engines, seed=11, label="1.1")
    assert set(checksums) == {checksum_of(lab.model.weights())}
    for engine, old in zip(engines, before, strict=True):
        new = await one(engine, LONG_PROMPT)
        assert new.logprobs != old.logprobs
        assert_computes_as(lab.model, LONG_PROMPT, new)
        assert new.versions == (VersionSpan(label="1.1", tokens=len(new.token_ids)),)
        status = await engine.status()
        assert (status.paused, status.update_open, status.label) == (False, False, "1.1")


async def test_after_a_sync_by_gloo_all_engines_of_the_group_compute_what_the_trainer_computes(
    lab: Lab, engines: list[VllmEngine]
) -> None:
    weights = lab.model.next_version(12)
    workers = [(await engine.status()).workers for engine in engines]
    sender = GlooSender(weights, workers=sum(workers), bucket_bytes=BUCKET_BYTES, deadline_s=120)
    transfers = [sender.for_engine(1 + sum(workers[:place])) for place in range(len(engines))]
    sending = sender.start()
    checksums = await asyncio.gather(
        *(take(engine, transfer, "1.2") for engine, transfer in zip(engines, transfers, strict=True))
    )
    sending.join()
    assert set(checksums) == {checksum_of(weights)}
    for engine in engines:
        assert_computes_as(lab.model, LONG_PROMPT, await one(engine, LONG_PROMPT))


async def test_a_sample_in_flight_goes_on_with_the_new_weights_and_says_from_where(
    lab: Lab, engines: list[VllmEngine]
) -> None:
    engine = engines[0]
    # Nobody tells when a sample is half made. How long that takes is found out, by waits that double.
    for number in range(9):
        old, new = f"3.{2 * number}", f"3.{2 * number + 1}"
        await sync_by_files(lab, [engine], seed=30 + number, label=old)
        sample = asyncio.create_task(one(engine, LONG_PROMPT, LONG_SAMPLE))
        await asyncio.wait((sample,), timeout=0.05 * 2**number)
        await engine.pause()
        await update(engine, files_of_next(lab, seed=60 + number, label=new), new)
        completion = await sample
        if len(completion.versions) > 1:
            break
    assert [span.label for span in completion.versions] == [old, new]
    made_before = completion.versions[0].tokens
    assert completion.logprobs is not None
    later = Completion(
        text="",
        token_ids=completion.token_ids[made_before:],
        finish_reason="length",
        versions=(),
        logprobs=completion.logprobs[made_before:],
    )
    assert_computes_as(lab.model, [*LONG_PROMPT, *completion.token_ids[:made_before]], later)


async def test_weights_that_do_not_match_are_refused_by_name_and_the_old_version_is_served(
    lab: Lab, engines: list[VllmEngine]
) -> None:
    engine = engines[0]
    await sync_by_files(lab, [engine], seed=15, label="1.5")
    good = lab.model.weights()
    norm = "model.norm.weight"
    wrong = {
        r"q_proj\.weight: missing": {name: value for name, value in good.items() if "q_proj" not in name},
        r"model\.norm\.weight: shape \[65\], the model has \[64\]": {**good, norm: torch.ones(65)},
        r"model\.norm\.weight: bfloat16, the model has float32": {**good, norm: good[norm].bfloat16()},
        r"model\.extra: the model has no such weight": {**good, "model.extra": torch.ones(3)},
    }
    for message, weights in wrong.items():
        with pytest.raises(WeightsMismatchError, match=message):
            await engine.compare(file_transfer(weights, lab.directory / "never"))
    await engine.pause()
    with pytest.raises(EngineRefusedError, match="paused or asleep already"):
        await engine.pause()
    for message, weights in wrong.items():
        with pytest.raises(WeightsMismatchError, match=message):
            await engine.begin_update(file_transfer(weights, lab.directory / "never"))
    assert not (await engine.status()).update_open
    await engine.resume()
    completion = await one(engine, LONG_PROMPT)
    assert completion.versions[0].label == "1.5"
    assert_computes_as(lab.model, LONG_PROMPT, completion)
    # Nor did what all workers refused leave anything behind in vLLM.
    await sync_by_files(lab, [engine], seed=18, label="1.8")
    assert_computes_as(lab.model, LONG_PROMPT, await one(engine, LONG_PROMPT))


async def test_text_and_chat_are_tokenized_by_the_model_s_own_tokenizer(lab: Lab, engines: list[VllmEngine]) -> None:
    chat = await engines[0].tokenize([{"role": "user", "content": "hi"}])
    text = await engines[0].tokenize("hi")
    assert len(text) == 2
    assert set(text) <= set(chat)
    samples = await engines[0].generate(chat, SamplingParams(max_tokens=4, n=3, seed=1))
    assert len(samples) == 3
    assert all(1 <= len(sample.token_ids) <= 4 for sample in samples)


@pytest.mark.parametrize("lab", ["llama-untied"], indirect=True)
async def test_a_trainer_that_dies_in_an_update_leaves_an_engine_that_a_restart_heals(
    lab: Lab, engines: list[VllmEngine]
) -> None:
    engine, server = engines[0], lab.servers[0]
    sender = GlooSender(lab.model.next_version(16), workers=2, bucket_bytes=BUCKET_BYTES, deadline_s=60)
    await engine.pause()
    await engine.begin_update(sender.transfer)
    sending = sender.start(stop_after=1)
    with pytest.raises(UpdateFailedError, match="was lost"):
        await engine.receive(sender.transfer)
    sending.join()
    status = await engine.status()
    assert (status.healthy, status.update_open) == (True, True)
    with pytest.raises(EngineRefusedError, match="restart it"):
        await engine.resume()
    with pytest.raises(EngineRefusedError, match="restart it"):
        await engine.begin_update(sender.transfer)
    server.stop()
    server.start()
    await asyncio.to_thread(server.wait)
    fresh = VllmEngine("fresh", server.url)
    assert (await fresh.status()).label is None
    await sync_by_files(lab, [fresh], seed=17, label="1.7")
    assert_computes_as(lab.model, LONG_PROMPT, await one(fresh, LONG_PROMPT))
    await fresh.close()
