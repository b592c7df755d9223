"""Weights arrive as they are, to the bit, on whatever way and number of ranks; and nothing strands a rank."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import obstore
import pytest
from trainerlab.handovers import Told, hand_over_versions
from trainerlab.jobs import job_config, tiny_model
from trainerlab.ranks import on_ranks

from benchmarks.s3_server import S3Server
from orchestrator.v1 import weight_transfer_service_pb2 as pb
from trainer.config import TrainerConfig
from trainer.launch import World


def config_of(tmp_path: Path, transport: str, *, tied: bool = False, **weights: Any) -> TrainerConfig:
    if transport == "filesystem":
        weights["directory"] = str(tmp_path / "weights")
    return job_config(
        tmp_path,
        model={"config": tiny_model(tied=tied)},
        weights={"transport": transport, "bucket_bytes": 6000, **weights},
    )


def on_rank(world: World, environment: dict[str, str], *arguments: Any) -> Told | None:
    os.environ.update(environment)
    return hand_over_versions(world, *arguments)


def hand_over(
    config: TrainerConfig,
    *,
    ranks: int = 1,
    count: int = 2,
    engines: tuple[int, ...] = (1,),
    faults: tuple[str, ...] = (),
    abort: bool = False,
    environment: dict[str, str] | None = None,
) -> Told:
    told = on_ranks(ranks, on_rank, environment or {}, config, count, engines, faults, abort)[0]
    assert isinstance(told, Told)
    return told


def outcomes(told: Told) -> list[str]:
    return [ended.outcome.value for ended, _ in told.results]


def same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


def slow(*values: Any) -> Any:
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("transport", "ranks", "tied", "dtype"),
    [
        ("gloo", 2, True, None),
        ("filesystem", 2, False, "bf16"),
        slow("gloo", 1, True, "fp32"),
        slow("gloo", 2, False, "bf16"),
        slow("gloo", 1, False, "fp16"),
        slow("filesystem", 1, True, "fp32"),
        slow("filesystem", 2, True, None),
    ],
)
def test_weights_arrive_to_the_bit(tmp_path: Path, transport: str, ranks: int, tied: bool, dtype: str | None) -> None:
    config = config_of(tmp_path, transport, tied=tied, dtype=dtype)
    told = hand_over(config, ranks=ranks, engines=(1, 2))
    assert outcomes(told) == ["landed", "landed"], told.results
    assert [number for number, _ in told.received] == [0, 1]
    for (_, engines), expected in zip(told.received, told.expected, strict=True):
        assert all(same(weights, expected) for weights in engines)
    request = pb.PrepareTransferRequest.FromString(told.prepares[0])
    names = [spec.name for spec in request.tensors]
    assert ("lm_head.weight" in names) is not tied
    assert "model.embed_tokens.weight" in names
    assert {spec.dtype for spec in request.tensors} == {{"bf16": "bfloat16", "fp16": "float16"}.get(dtype, "float32")}
    assert told.reported == [ended for ended, _ in told.results]
    assert all(size == sum(map(len, told.expected[0].values())) for _, size in told.results)


@pytest.mark.parametrize(
    ("fault", "outcome", "detail", "calls"),
    [
        slow("refuses", "skipped", "refused (pinned): all engines are pinned", ["prepare"]),
        slow("dies in prepare", "skipped", "PrepareTransfer: orchestrator", ["prepare", "abort"]),
        ("dies mid-send", "failed", "rank 0: ", ["prepare", "abort"]),
        slow("dies before it commits", "failed", "CommitTransfer: orchestrator", ["prepare", "commit", "abort"]),
    ],
)
def test_after_a_sync_that_failed_the_next_one_lands(
    tmp_path: Path, fault: str, outcome: str, detail: str, calls: list[str]
) -> None:
    told = hand_over(config_of(tmp_path, "gloo"), ranks=2, faults=(fault,))
    assert outcomes(told) == [outcome, "landed"]
    assert detail in told.reported[0].detail
    assert told.calls == [*calls, "prepare", "commit"]
    assert len({pb.PrepareTransferRequest.FromString(each).sync_id for each in told.prepares}) == 2
    [(number, [weights])] = told.received
    assert number == 1
    assert same(weights, told.expected[1])
    assert told.reported == [ended for ended, _ in told.results]


@pytest.mark.parametrize(
    ("fault", "deadline", "outcome"),
    [
        slow("is silent in prepare", {"prepare_s": 0.3}, "skipped"),
        ("never joins", {"send_s": 0.3}, "failed"),
        slow("expires soon", {}, "failed"),
        slow("is silent in commit", {"commit_s": 0.3}, "failed"),
    ],
)
def test_nothing_waits_beyond_its_deadline(
    tmp_path: Path, fault: str, deadline: dict[str, float], outcome: str
) -> None:
    told = hand_over(config_of(tmp_path, "gloo", **deadline), ranks=2, count=1, faults=(fault,))
    assert outcomes(told) == [outcome]
    assert told.received == []


@pytest.mark.parametrize(
    ("fault", "outcome"),
    [("is silent in prepare", "skipped"), slow("stalls mid-send", "failed"), slow("is silent in commit", "failed")],
)
def test_an_abort_ends_a_transfer_that_waits_at_once(tmp_path: Path, fault: str, outcome: str) -> None:
    long = {"prepare_s": 500, "commit_s": 500, "send_s": 500}
    told = hand_over(config_of(tmp_path, "gloo", **long), count=1, faults=(fault,), abort=True)
    assert outcomes(told) == [outcome]
    assert "aborted: an engine died" in told.reported[0].detail
    # The first one named another transfer, and was none of this one's business.
    assert told.aborted == [False, True]


def test_files_of_syncs_that_are_over_are_deleted(tmp_path: Path) -> None:
    left = tmp_path / "weights" / "chat" / f"1.7-{'0' * 32}"
    left.mkdir(parents=True)
    (left / "00000.safetensors").write_bytes(b"half")
    told = hand_over(config_of(tmp_path, "filesystem"), ranks=2, faults=("dies before it commits",))
    assert outcomes(told) == ["failed", "landed"]
    assert list((tmp_path / "weights" / "chat").iterdir()) == []


def test_objects_of_a_storage_are_written_by_all_ranks_and_deleted_when_their_sync_is_over(
    tmp_path: Path, s3_server: S3Server
) -> None:
    bucket = s3_server.bucket("weights")
    obstore.put(bucket, f"runs/chat/1.7-{'0' * 32}/00000.safetensors", b"half", use_multipart=False)
    obstore.put(bucket, "runs/chat/kept", b"no sync's", use_multipart=False)
    weights = {"transport": "filesystem", "bucket_bytes": 6000, "directory": "s3://weights/runs"}
    config = job_config(tmp_path, model={"config": tiny_model(tied=True)}, weights=weights)
    told = hand_over(config, ranks=2, environment=s3_server.whole_environment)
    assert outcomes(told) == ["landed", "landed"], told.results
    for (_, [received]), expected in zip(told.received, told.expected, strict=True):
        assert same(received, expected)
    assert [meta["path"] for meta in obstore.list(bucket, "runs").collect()] == ["runs/chat/kept"]


def test_a_storage_that_refuses_costs_a_sync_and_not_the_job(tmp_path: Path, s3_server: S3Server) -> None:
    weights = {"transport": "filesystem", "directory": "s3://weights/runs"}
    config = job_config(tmp_path, model={"config": tiny_model(tied=True)}, weights=weights)
    strangers = {**s3_server.whole_environment, "AWS_SECRET_ACCESS_KEY": "another"}
    told = hand_over(config, ranks=2, count=1, environment=strangers)
    assert outcomes(told) == ["skipped"]
    assert "refuses the credentials" in told.reported[0].detail
