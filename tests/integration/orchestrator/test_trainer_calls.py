"""The orchestrator ends a transfer at a trainer that lets in only who proves to be let in."""

import logging
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from dataserver.errors import InvalidConfigError, UnauthenticatedError
from dataserver.listening import CalleeConfig
from dataserver.weight_sync import PolicyVersion
from dataserver.wire.status import error_of
from orchestrator.engines.interface import Transport
from orchestrator.trainer_calls import TrainerCalls
from orchestrator.transfers.values import PrepareRequest
from trainer.service import TrainerServer
from trainer.v1 import trainer_service_pb2 as messages
from trainer.v1.trainer_service_pb2_grpc import TrainerServiceStub
from trainer.weights.sync import Sync, TransferError
from trainer.weights.underway import Underway
from trainer.weights_config import WeightsConfig

TOKEN = "correct-horse-battery-staple"  # noqa: S105
VERSION = PolicyVersion(attempt=3, number=7)
SYNC = Sync(sync_id="ab" * 16, run="chat", attempt=3, version=VERSION)


@pytest.fixture(scope="module")
def pem(certified: Path) -> Path:
    (certified / "token").write_text(TOKEN + "\n")
    (certified / "other").write_text("x" * 20)
    return certified


@pytest.fixture
def underway() -> Underway:
    underway = Underway()
    underway.begin(SYNC)
    return underway


@pytest.fixture
def guarded(pem: Path, underway: Underway) -> Iterator[TrainerServer]:
    tls = {"certificate": pem / "certificate.pem", "key": pem / "key.pem"}
    config = WeightsConfig(transport="gloo", tls=tls, token_file=pem / "token")
    server = TrainerServer(config, run="chat", world_size=1, version=lambda: VERSION, underway=underway)
    yield server
    server.close()


def prepared_at(address: str) -> PrepareRequest:
    return PrepareRequest(
        run="chat", version=VERSION, attempt_id="a" * 32, sync_id=SYNC.sync_id, epoch=1, transport=Transport.GLOO,
        tensors=(), bucket_bytes=1, trainer_address=address, rendezvous="127.0.0.1:1", directory="",
    )  # fmt: skip


async def test_an_orchestrator_with_token_and_certificate_ends_the_transfer(guarded, pem, underway) -> None:
    calls = TrainerCalls(CalleeConfig(token_file=pem / "token", ca_file=pem / "certificate.pem"))
    await calls.abort(prepared_at(guarded.address), "an engine died")
    with pytest.raises(TransferError, match="an engine died"):
        underway.check()


@pytest.mark.parametrize("token", [None, "other"])
async def test_one_without_the_token_does_not(guarded, pem, underway, token: str | None) -> None:
    token_file = token and pem / token
    await TrainerCalls(CalleeConfig(token_file=token_file, ca_file=pem / "certificate.pem")).abort(
        prepared_at(guarded.address), "for fun"
    )
    underway.check()


def test_who_has_no_token_is_told_so_and_plain_text_is_not_understood(guarded, pem) -> None:
    credentials = grpc.ssl_channel_credentials((pem / "certificate.pem").read_bytes())
    with grpc.secure_channel(guarded.address, credentials) as channel:
        stub = TrainerServiceStub(channel)
        with pytest.raises(grpc.RpcError) as refused:
            stub.GetStatus(messages.GetStatusRequest(), timeout=20)
        assert isinstance(error_of(refused.value), UnauthenticatedError)
        assert "wants a token" in refused.value.details()
        header = (("authorization", f"Bearer {TOKEN}"),)
        assert stub.GetStatus(messages.GetStatusRequest(), timeout=20, metadata=header).run == "chat"
    with grpc.insecure_channel(guarded.address) as channel, pytest.raises(grpc.RpcError) as unheard:
        TrainerServiceStub(channel).GetStatus(messages.GetStatusRequest(), timeout=20)
    assert unheard.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_token_is_not_sent_to_another_machine_in_plain_text(pem, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        await TrainerCalls(CalleeConfig(token_file=pem / "token")).abort(prepared_at("10.0.0.7:7000"), "stalled")
    assert "would travel in the clear to 10.0.0.7:7000" in caplog.text


@pytest.mark.parametrize("field", ["token_file", "ca_file"])
def test_a_file_that_is_missing_is_named_before_anything_starts(tmp_path: Path, field: str) -> None:
    with pytest.raises(InvalidConfigError, match="absent"):
        TrainerCalls(CalleeConfig.model_validate({field: tmp_path / "absent"}))
