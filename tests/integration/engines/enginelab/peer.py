"""An orchestrator in a few lines, over real engines: a trainer's rank 0 calls it by the contract."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc

from dataserver.weight_buckets import TensorSpec
from orchestrator.engines.interface import Engine, Transfer, Transport
from orchestrator.v1 import weight_transfer_service_pb2 as pb
from orchestrator.v1.weight_transfer_service_pb2_grpc import (
    WeightTransferServiceServicer,
    add_WeightTransferServiceServicer_to_server,
)

TRANSPORT = {pb.TRANSPORT_FILESYSTEM: Transport.FILESYSTEM, pb.TRANSPORT_GLOO: Transport.GLOO}
DEADLINE_S = 120


class EnginePeer(WeightTransferServiceServicer):
    """Takes version N to the engines `plan[N]`, and waits for `landed(N)` before it says so."""

    def __init__(self, plan: Sequence[Sequence[Engine]], landed: Callable[[int], Awaitable[None]]) -> None:
        self._plan = plan
        self._landed = landed
        self._engines: Sequence[Engine] = ()
        self._number = 0
        self._receiving: list[asyncio.Task[str]] = []
        self._label = ""

    async def PrepareTransfer(self, request: pb.PrepareTransferRequest, context: Any) -> pb.PrepareTransferResponse:  # noqa: N802
        self._number = request.version.number
        self._engines = self._plan[self._number]
        workers = [(await engine.status()).workers for engine in self._engines]
        self._label = f"{request.version.attempt}.{request.version.number}"
        ready = pb.TransferReady(group_size=1 + sum(workers))
        self._receiving = []
        for place, engine in enumerate(self._engines):
            transfer = transfer_of(request, 1 + sum(workers), 1 + sum(workers[:place]))
            await engine.pause()
            await engine.begin_update(transfer)
            self._receiving.append(asyncio.create_task(engine.receive(transfer)))
            ready.engines.add(name=engine.name, first_rank=transfer.first_rank, workers=workers[place])
        return pb.PrepareTransferResponse(ready=ready)

    async def CommitTransfer(self, request: pb.CommitTransferRequest, context: Any) -> pb.CommitTransferResponse:  # noqa: N802
        outcomes = []
        for engine, receiving in zip(self._engines, self._receiving, strict=True):
            checksum = await receiving
            if landed := checksum == request.checksum:
                await engine.finish_update(self._label)
                await engine.reset_prefix_cache()
                await engine.resume()
            outcomes.append(pb.EngineOutcome(engine=engine.name, landed=landed, detail=checksum))
        await self._landed(self._number)
        return pb.CommitTransferResponse(engines=outcomes)


def transfer_of(request: pb.PrepareTransferRequest, group_size: int, first_rank: int) -> Transfer:
    return Transfer(
        sync_id=request.sync_id,
        transport=TRANSPORT[request.transport],
        tensors=tuple(TensorSpec(name=t.name, dtype=t.dtype, shape=tuple(t.shape)) for t in request.tensors),
        bucket_bytes=request.bucket_bytes,
        deadline_s=DEADLINE_S,
        rendezvous=request.rendezvous,
        group_size=group_size,
        first_rank=first_rank,
        directory=request.directory,
    )


@asynccontextmanager
async def running_peer(
    plan: Sequence[Sequence[Engine]], landed: Callable[[int], Awaitable[None]]
) -> AsyncIterator[str]:
    """Its address."""
    server = grpc.aio.server()
    add_WeightTransferServiceServicer_to_server(EnginePeer(plan, landed), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)
