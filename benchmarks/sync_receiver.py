"""An orchestrator with one engine for benchmarks: takes every transfer over gloo, and forgets the weights.

Served by a process of its own until the other end of the pipe closes.
"""

from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing.connection import Connection

import grpc

from dataserver.weight_buckets import TensorSpec, WeightsChecksum
from orchestrator.engines.interface import Transfer, Transport
from orchestrator.receivers.bucket import Deadline
from orchestrator.receivers.gloo import receive_gloo
from orchestrator.v1 import weight_transfer_service_pb2 as pb
from orchestrator.v1.weight_transfer_service_pb2_grpc import (
    WeightTransferServiceServicer,
    add_WeightTransferServiceServicer_to_server,
)

DEADLINE_S = 120.0


class Receiver(WeightTransferServiceServicer):
    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1)
        self._checksums: dict[str, Future[str]] = {}
        self.prepares = 0

    def PrepareTransfer(self, request: pb.PrepareTransferRequest, _: object) -> pb.PrepareTransferResponse:  # noqa: N802
        self.prepares += 1
        self._checksums[request.sync_id] = self._pool.submit(receive, request)
        ready = pb.TransferReady(group_size=2)
        ready.engines.add(name="engine", first_rank=1, workers=1)
        return pb.PrepareTransferResponse(ready=ready)

    def CommitTransfer(self, request: pb.CommitTransferRequest, _: object) -> pb.CommitTransferResponse:  # noqa: N802
        found = self._checksums.pop(request.sync_id).result()
        outcome = pb.EngineOutcome(engine="engine", landed=found == request.checksum, detail=found)
        return pb.CommitTransferResponse(engines=[outcome])

    def AbortTransfer(self, _request: pb.AbortTransferRequest, _: object) -> pb.AbortTransferResponse:  # noqa: N802
        return pb.AbortTransferResponse()


def receive(request: pb.PrepareTransferRequest) -> str:
    transfer = Transfer(
        sync_id=request.sync_id,
        transport=Transport.GLOO,
        tensors=tuple(TensorSpec(name=t.name, dtype=t.dtype, shape=tuple(t.shape)) for t in request.tensors),
        bucket_bytes=request.bucket_bytes,
        deadline_s=DEADLINE_S,
        rendezvous=request.rendezvous,
        group_size=2,
        first_rank=1,
    )
    checksum = WeightsChecksum()
    for bucket in receive_gloo(transfer, 1, Deadline(DEADLINE_S)):
        for _, data in bucket:
            checksum.add(data)
    return checksum.hexdigest()


def serve(pipe: Connection) -> None:
    """Tell the address; then, whenever asked, how many transfers were prepared."""
    receiver = Receiver()
    server = grpc.server(ThreadPoolExecutor(4))
    add_WeightTransferServiceServicer_to_server(receiver, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    pipe.send(f"127.0.0.1:{port}")
    try:
        while pipe.recv():
            pipe.send(receiver.prepares)
    except EOFError:
        server.stop(None).wait()
