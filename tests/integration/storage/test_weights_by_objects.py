"""Weights through an object storage that is slow: who writes has its time, and who reads has no more than its own."""

import pytest

from dataserver.weight_buckets import TensorSpec
from orchestrator.engines.interface import Transfer, Transport
from orchestrator.receivers.bucket import Deadline, ReceiveError
from orchestrator.receivers.files import receive_files
from trainer.weights.folders import ObjectFolder

URL = "s3://bucket/weights"


@pytest.fixture(autouse=True)
def environment(faulty, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{faulty.server_port}")
    monkeypatch.setenv("AWS_REGION", "us-east-1")


@pytest.mark.slow
def test_an_object_that_takes_longer_than_a_silent_storage_is_given_is_written_in_one_try(faulty) -> None:
    tries = []

    def slow(handler, begin: int, end: int) -> None:
        tries.append(end)
        faulty.released.wait(22)
        faulty.taken(handler, begin, end)

    faulty.script = [slow] * 3
    ObjectFolder(URL, "chat", send_s=600).write("1.7", "00000.safetensors", (b"header", b"weights"))
    assert tries == [len(b"headerweights")]


def test_what_comes_too_slowly_ends_at_the_transfers_deadline_however_large_it_is(faulty) -> None:
    def trickle(handler, begin: int, end: int) -> None:
        handler.ranged(begin, end, b"")
        while not faulty.released.wait(0.1):
            handler.wfile.write(b"x" * 70_000)

    faulty.script = [trickle] * 9
    spec = TensorSpec(name="weight", dtype="float32", shape=(1,))
    transfer = Transfer(
        sync_id="0" * 32,
        transport=Transport.FILESYSTEM,
        tensors=(spec,),
        bucket_bytes=1000,
        deadline_s=1.5,
        directory=URL,
    )
    with pytest.raises(ReceiveError, match=r"weights\.json' was not read within (0|1)(\.\d+)? s"):
        list(receive_files(transfer, Deadline(1.5)))
