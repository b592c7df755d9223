"""Rank 0 tells where it is, and lets a transfer be ended that it waits in, and no other."""

from collections.abc import Iterator

import grpc
import pytest

from dataserver.errors import InvalidConfigError
from dataserver.weight_sync import PolicyVersion
from trainer.service import TrainerServer
from trainer.v1 import trainer_service_pb2 as pb
from trainer.v1.trainer_service_pb2_grpc import TrainerServiceStub
from trainer.weights.sync import Sync, TransferError
from trainer.weights.underway import Underway
from trainer.weights_config import WeightsConfig

VERSION = PolicyVersion(attempt=3, number=7)
SYNC = Sync(sync_id="ab" * 16, run="chat", attempt=2, version=VERSION)


@pytest.fixture
def underway() -> Underway:
    return Underway()


@pytest.fixture
def server(underway: Underway) -> Iterator[TrainerServer]:
    config = WeightsConfig(transport="gloo")
    server = TrainerServer(config, run="chat", world_size=2, version=lambda: VERSION, underway=underway)
    yield server
    server.close()
    server.close()


@pytest.fixture
def stub(server: TrainerServer) -> Iterator[TrainerServiceStub]:
    with grpc.insecure_channel(server.address) as channel:
        yield TrainerServiceStub(channel)


def test_the_status_names_run_version_ranks_and_the_transfer(stub: TrainerServiceStub, underway: Underway) -> None:
    underway.begin(SYNC)
    status = stub.GetStatus(pb.GetStatusRequest())
    assert (status.run, status.version.attempt, status.version.number, status.world_size) == ("chat", 3, 7, 2)
    assert status.sync_id == SYNC.sync_id
    underway.end()
    assert not stub.GetStatus(pb.GetStatusRequest()).sync_id


def test_an_abort_wakes_who_waits_and_is_no_error_when_it_is_late(stub: TrainerServiceStub, underway: Underway) -> None:
    def abort(sync_id: str) -> bool:
        return stub.AbortTransfer(pb.AbortTransferRequest(sync_id=sync_id, reason="an engine died")).aborted

    woken: list[str] = []
    assert not abort(SYNC.sync_id)
    underway.begin(SYNC)
    with underway.waiting(woken.append):
        assert not abort("cd" * 16)
        underway.check()
        assert abort(SYNC.sync_id)
        assert abort(SYNC.sync_id)
    assert woken == ["aborted: an engine died"] * 2
    with pytest.raises(TransferError, match="an engine died"):
        underway.check()
    underway.end()
    assert not abort(SYNC.sync_id)


def test_an_abort_between_two_waits_ends_the_second_at_once(underway: Underway) -> None:
    underway.begin(SYNC)
    assert underway.abort(SYNC.sync_id, "")
    woken: list[str] = []
    with underway.waiting(woken.append):
        assert woken == ["aborted"]


def test_an_address_that_is_taken_is_named(server: TrainerServer, underway: Underway) -> None:
    config = WeightsConfig(transport="gloo", listen=server.address)
    with pytest.raises(InvalidConfigError, match=r"weights\.listen"):
        TrainerServer(config, run="chat", world_size=1, version=lambda: VERSION, underway=underway)
