"""Rank 0's calls to the orchestrator, some of which a story loses, doubles, delays or repeats when all is over."""

import random
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import grpc

from orchestrator.v1 import weight_transfer_service_pb2 as messages
from orchestrator.v1.weight_transfer_service_pb2_grpc import WeightTransferServiceStub

PREPARE_S = 4.0
COMMIT_S = 6.0
ABORT_S = 2.0


class LostError(Exception):
    """No answer came, whatever became of the call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mischief:
    """How often a call is lost on its way or on its way back, doubled, late by up to `delay_s`, or repeated later."""

    seed: int = 0
    lost: float = 0.0
    doubled: float = 0.0
    delayed: float = 0.0
    repeated: float = 0.0
    delay_s: float = 0.3


class Calls:
    """Calls of one trainer's life, to whichever orchestrator a stamp names."""

    def __init__(self, mischief: Mischief) -> None:
        self._mischief = mischief
        self._chance = random.Random(mischief.seed)
        self._over: list[Callable[[], object]] = []

    def call(self, address: str, method: str, request: Any, timeout_s: float) -> Any:
        """One call, with whatever happens to it on the way; `LostError` when no answer comes."""
        self._say_again()
        mischief, chance = self._mischief, self._chance
        if chance.random() < mischief.delayed:
            time.sleep(chance.uniform(0, mischief.delay_s))
        if chance.random() < mischief.lost / 2:
            raise LostError(f"{method}: lost on its way")
        with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
            stub = getattr(WeightTransferServiceStub(channel), method)
            doubled = stub.future(request, timeout=timeout_s) if chance.random() < mischief.doubled else None
            try:
                answer = stub(request, timeout=timeout_s)
                if doubled is not None:
                    self._compare(method, answer, doubled.result())
            except grpc.RpcError as error:
                raise LostError(f"{method}: {error.code().name}: {error.details()}") from error
        if chance.random() < mischief.repeated:
            self._over.append(lambda: _once_more(address, method, request))
        if chance.random() < mischief.lost / 2:
            raise LostError(f"{method}: its answer was lost")
        return answer

    def _compare(self, method: str, first: Any, second: Any) -> None:
        """Both begin the transfer or both refuse it, for whatever reason; both tell the same end."""
        if method == "PrepareTransfer":
            first, second = first.WhichOneof("answer"), second.WhichOneof("answer")
        if first != second:
            raise RuntimeError(f"{method} was answered {first}, and its double {second}")

    def _say_again(self) -> None:
        """What was said in a sync that is over comes once more, late."""
        while self._over and self._chance.random() < 0.7:
            self._over.pop(0)()


def _once_more(address: str, method: str, request: Any) -> None:
    with suppress(grpc.RpcError), grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
        getattr(WeightTransferServiceStub(channel), method)(request, timeout=1.0)


def prepare_request(**fields: Any) -> Any:
    """A prepare through files."""
    from synclab.versions import BUCKET_BYTES, TENSORS

    tensors = [messages.TensorSpec(name=t.name, dtype=t.dtype, shape=t.shape) for t in TENSORS]
    return messages.PrepareTransferRequest(
        transport=messages.TRANSPORT_FILESYSTEM, tensors=tensors, bucket_bytes=BUCKET_BYTES, **fields
    )
