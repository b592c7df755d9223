"""What goes to vLLM and comes from it."""

import json
from typing import Any

import pytest

from dataserver.weight_buckets import TensorSpec
from orchestrator.engines.interface import SamplingParams, Transfer, Transport, VersionSpan
from orchestrator.engines.wire import (
    generate_request,
    init_request,
    parse_completions,
    parse_reports,
    parse_transfer,
    parsed,
)
from orchestrator.errors import EngineRefusedError, GenerationAbortedError

TRANSFER = Transfer(
    sync_id="0" * 32,
    transport=Transport.GLOO,
    tensors=(TensorSpec(name="w", dtype="bfloat16", shape=(2, 3)),),
    bucket_bytes=64,
    deadline_s=1.5,
    rendezvous="10.0.0.1:5",
    group_size=3,
    first_rank=2,
)


def choice(**fields: Any) -> dict[str, Any]:
    return {
        "index": 0,
        "text": "hi",
        "token_ids": [5, 6, 7],
        "finish_reason": "stop",
        "logprobs": None,
        "weight_versions": [{"version": "default", "start": 0, "end": 1}, {"version": "1.4", "start": 1, "end": 3}],
        **fields,
    }


def test_a_transfer_arrives_as_it_was_announced() -> None:
    assert parse_transfer(json.loads(json.dumps(init_request(TRANSFER)))["transfer"]) == TRANSFER


@pytest.mark.parametrize("change", [{"transport": "carrier pigeon"}, {"tensors": [["w"]]}, {"unknown": 1}])
def test_what_is_no_transfer_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_transfer({**init_request(TRANSFER)["transfer"], **change})


def test_a_completion_tells_which_weights_made_which_tokens() -> None:
    (completion,) = parse_completions("e0", {"choices": [choice()]})
    assert completion.versions == (VersionSpan(label=None, tokens=1), VersionSpan(label="1.4", tokens=2))
    assert completion.logprobs is None


def test_samples_come_in_the_order_of_their_index() -> None:
    answer = {"choices": [choice(index=1, text="b"), choice(index=0, text="a")]}
    assert [completion.text for completion in parse_completions("e0", answer)] == ["a", "b"]


def test_a_sample_without_versions_is_refused_as_they_cannot_be_guessed() -> None:
    with pytest.raises(EngineRefusedError, match="which weights made"):
        parse_completions("e0", {"choices": [choice(weight_versions=None)]})


def test_a_sample_that_was_given_up_is_an_error() -> None:
    with pytest.raises(GenerationAbortedError, match=r"engine e0: generate: .*'abort' after 3 tokens"):
        parse_completions("e0", {"choices": [choice(finish_reason="abort")]})


@pytest.mark.parametrize("answer", [{}, {"choices": [{}]}, {"choices": 5}])
def test_an_answer_of_another_version_of_vllm_is_refused(answer: dict[str, Any]) -> None:
    with pytest.raises(EngineRefusedError, match="something unknown"):
        parse_completions("e0", answer)


def test_a_report_that_is_none_is_refused() -> None:
    with pytest.raises(EngineRefusedError, match="transfer_report"):
        parse_reports("e0", {"results": [None]})


def test_logprobs_are_asked_for_without_alternatives_and_a_seed_only_where_there_is_one() -> None:
    params = generate_request([1], SamplingParams(max_tokens=3, logprobs=True, stop=("\n",)))["sampling_params"]
    assert params["logprobs"] == 0
    assert params["stop"] == ["\n"]
    assert "seed" not in params
    assert generate_request([1], SamplingParams(max_tokens=3, seed=0))["sampling_params"]["seed"] == 0


@pytest.mark.parametrize("answer", [[], [{}], None, [None], {"id": "m"}])
def test_an_answer_that_is_not_what_it_should_be_is_an_engines_fault(answer: Any) -> None:
    with pytest.raises(EngineRefusedError, match="engine e0: GET /v1/models: answers with something unknown"):
        parsed("e0", "GET /v1/models", answer, lambda models: models[0]["id"])
