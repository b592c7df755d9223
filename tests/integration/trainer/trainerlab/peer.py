"""An orchestrator with engines of its own, far from ours: it takes weights by the contract alone.

It answers PrepareTransfer, CommitTransfer and AbortTransfer, packs buckets by its own reckoning, receives
with a gloo group of its own or reads files with the safetensors package, and keeps what arrived. `faults` says
what it does wrong, sync after sync.
"""

import json
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grpc
import numpy as np
import xxhash

from orchestrator.v1 import weight_transfer_service_pb2 as pb
from orchestrator.v1.weight_transfer_service_pb2_grpc import (
    WeightTransferServiceServicer,
    add_WeightTransferServiceServicer_to_server,
)

WIDTH = {"float32": 4, "bfloat16": 2, "float16": 2}
Weights = dict[str, np.ndarray]
# Long enough for a machine with other work; nothing waits for it unless something broke.
PATIENCE_S = 60


class Peer(WeightTransferServiceServicer):
    """`engines`: workers of each. `faults`: for the first syncs, one each; `""` for none. `events`: notes the calls."""

    def __init__(
        self, engines: Sequence[int] = (1,), faults: Sequence[str] = (), *, events: list[str] | None = None
    ) -> None:
        self._engines = engines
        self._faults = list(faults)
        self._open: dict[str, _Incoming] = {}
        self.calls: list[str] = [] if events is None else events
        self.prepares: list[pb.PrepareTransferRequest] = []
        self.aborts: list[pb.AbortTransferRequest] = []
        self.received: list[tuple[int, list[Weights]]] = []
        self.reached = threading.Event()
        self._over = threading.Event()
        self._server = grpc.server(ThreadPoolExecutor(8))
        add_WeightTransferServiceServicer_to_server(self, self._server)
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def close(self) -> None:
        self._over.set()
        self._server.stop(None).wait()

    def PrepareTransfer(self, request: pb.PrepareTransferRequest, context: Any) -> pb.PrepareTransferResponse:  # noqa: N802
        self.calls.append("prepare")
        self.prepares.append(request)
        fault = self._faults.pop(0) if self._faults else ""
        if fault == "refuses":
            refused = pb.TransferRefused(reason=pb.REFUSAL_REASON_PINNED, detail="all engines are pinned")
            return pb.PrepareTransferResponse(refused=refused)
        if fault == "takes another transport":
            refused = pb.TransferRefused(reason=pb.REFUSAL_REASON_TRANSPORT, detail="'gloo' here: make them equal")
            return pb.PrepareTransferResponse(refused=refused)
        if fault == "is silent in prepare":
            self._until_given_up(context)
        if fault == "dies in prepare":
            context.abort(grpc.StatusCode.UNAVAILABLE, "died")
        incoming = _Incoming(request, sum(self._engines), fault, self.reached, self._over)
        self._open[request.sync_id] = incoming
        ready = pb.TransferReady(group_size=1 + sum(self._engines))
        if fault == "expires soon":
            ready.expires_in.FromMilliseconds(300)
        first = 1
        for index, workers in enumerate(self._engines):
            ready.engines.add(name=f"engine-{index}", first_rank=first, workers=workers)
            first += workers
        return pb.PrepareTransferResponse(ready=ready)

    def CommitTransfer(self, request: pb.CommitTransferRequest, context: Any) -> pb.CommitTransferResponse:  # noqa: N802
        self.calls.append("commit")
        incoming = self._open[request.sync_id]
        if incoming.fault == "dies before it commits":
            context.abort(grpc.StatusCode.UNAVAILABLE, "died")
        if incoming.fault == "is silent in commit":
            self._until_given_up(context)
        weights = incoming.weights()
        found = [checksum(incoming.request, each) for each in weights]
        landed = all(each == request.checksum for each in found)
        if landed:
            self.received.append((incoming.request.version.number, weights))
        outcomes = [
            pb.EngineOutcome(engine=f"engine-{index}", landed=landed, detail="" if landed else f"checksum {found}")
            for index in range(len(self._engines))
        ]
        return pb.CommitTransferResponse(engines=outcomes)

    def AbortTransfer(self, request: pb.AbortTransferRequest, context: Any) -> pb.AbortTransferResponse:  # noqa: N802
        self.calls.append("abort")
        self.aborts.append(request)
        self._over.set()
        return pb.AbortTransferResponse()

    def _until_given_up(self, context: Any) -> None:
        """Say nothing until the caller has gone."""
        gone = threading.Event()
        context.add_callback(gone.set)
        self.reached.set()
        gone.wait(PATIENCE_S)
        context.abort(grpc.StatusCode.CANCELLED, "the caller has gone")


class _Incoming:
    """What one sync brings, to each of `workers`."""

    def __init__(
        self,
        request: pb.PrepareTransferRequest,
        workers: int,
        fault: str,
        reached: threading.Event,
        over: threading.Event,
    ) -> None:
        self.request = request
        self.fault = fault
        self._reached = reached
        self._over = over
        self._size = workers + 1
        self._pool = ThreadPoolExecutor(workers)
        joins = request.transport == pb.TRANSPORT_GLOO and fault not in {"never joins", "expires soon"}
        self._work = [self._pool.submit(self._receive, rank + 1) for rank in range(workers)] if joins else []

    def weights(self) -> list[Weights]:
        if self.request.transport == pb.TRANSPORT_FILESYSTEM:
            with fetched(self.request.directory) as directory:
                return [read_files(directory)]
        return [work.result(PATIENCE_S) for work in self._work]

    def _receive(self, rank: int) -> Weights:
        import torch
        from torch.distributed import PrefixStore, ProcessGroupGloo, TCPStore

        host, _, port = self.request.rendezvous.rpartition(":")
        store = TCPStore(host, int(port), is_master=False, wait_for_workers=False)
        timeout = timedelta(seconds=PATIENCE_S)
        group = ProcessGroupGloo(PrefixStore(self.request.sync_id, store), rank, self._size, timeout)
        found: Weights = {}
        for bucket in buckets(self.request):
            if self.fault == "dies mid-send" and found:
                return found
            sizes = [WIDTH[spec.dtype] * int(np.prod(spec.shape, dtype=np.int64)) for spec in bucket]
            data = torch.empty(sum(sizes), dtype=torch.uint8)
            group.broadcast(data, 0).wait()
            parts = np.split(data.numpy(), np.cumsum(sizes)[:-1])
            if self.fault == "stalls mid-send":
                self._reached.set()
                self._over.wait(PATIENCE_S)
                return found
            found.update(zip((spec.name for spec in bucket), parts, strict=True))
        return found


def buckets(request: pb.PrepareTransferRequest) -> list[list[pb.TensorSpec]]:
    """The contract's packing, reckoned anew."""
    found: list[list[pb.TensorSpec]] = []
    room = 0
    for spec in request.tensors:
        size = WIDTH[spec.dtype] * int(np.prod(spec.shape, dtype=np.int64))
        if not found or size > room:
            found.append([])
            room = request.bucket_bytes
        found[-1].append(spec)
        room -= size
    return found


@contextmanager
def fetched(directory: str) -> Iterator[Path]:
    """The directory; objects of an S3 server, as the environment has it, are brought here by their own client."""
    if not directory.startswith("s3://"):
        yield Path(directory)
        return
    import obstore
    from obstore.store import S3Store

    bucket, _, prefix = directory.removeprefix("s3://").partition("/")
    store = S3Store(bucket, prefix=prefix, client_options={"allow_http": True})
    with TemporaryDirectory() as local:
        for meta in obstore.list(store).collect():
            (Path(local) / meta["path"]).write_bytes(obstore.get(store, meta["path"]).bytes())
        yield Path(local)


def read_files(directory: Path) -> Weights:
    """All weights of a directory whose marker is there, as bytes."""
    import torch
    from safetensors import safe_open

    marker = json.loads((directory / "weights.json").read_text())
    found: Weights = {}
    for tensor in marker["tensors"]:
        with safe_open(directory / tensor["file"], framework="pt") as file:
            value = file.get_tensor(tensor["name"])
        assert list(value.shape) == tensor["shape"]
        assert str(value.dtype) == f"torch.{tensor['dtype']}"
        found[tensor["name"]] = value.reshape(-1).view(torch.uint8).numpy().copy()
    digests = b"".join(xxhash.xxh3_128_digest(value.tobytes()) for value in found.values())
    assert xxhash.xxh3_128_hexdigest(digests) == marker["checksum"]
    return found


def checksum(request: pb.PrepareTransferRequest, weights: Weights) -> str:
    digests = [xxhash.xxh3_128_digest(weights[spec.name].tobytes()) for spec in request.tensors if spec.name in weights]
    return xxhash.xxh3_128_hexdigest(b"".join(digests))
