"""How a stream ends whose client goes away while a message is under way."""

import asyncio
import gc
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from dataserver.config import ServerConfig
from dataserver.hosting.call import EOF
from dataserver.streaming.metrics import Metrics
from dataserver.streaming.session import StreamSession
from dataserver.streaming.waits import Waits
from dataserver.v1 import batch_service_pb2, run_spec_pb2

# More turns of the loop than the end of a stream takes, none of which waits for anything.
TURNS = 100


class VanishingClient:
    """gRPC's side of a call: `open`, then silence; a write that neither ends nor fails until it is told to."""

    def __init__(self) -> None:
        spec = run_spec_pb2.EvalSpec(
            store="rows", max_length=16, long_rows=run_spec_pb2.LONG_ROWS_TRUNCATE, micro_batch_tokens=32, alignment=1
        )
        self._first = batch_service_pb2.StreamMicroBatchesRequest(
            open=batch_service_pb2.Open(purpose=batch_service_pb2.PURPOSE_EVAL, eval=spec, dp_world_size=1, credits=4)
        )
        self.gone = asyncio.Event()
        self.write_begun = asyncio.Event()
        self.write_fails = asyncio.Event()

    async def read(self) -> Any:
        if self._first is not None:
            first, self._first = self._first, None
            return first
        await self.gone.wait()
        return EOF

    async def write(self, _data: bytes) -> None:
        self.write_begun.set()
        await self.write_fails.wait()
        raise OSError("the client is gone")


class OneMessage:
    """A store to read, and its reading, of which nobody comes beyond the first message."""

    name, rank, step = "held-out store 'rows'", "dp rank 0", 0

    def __init__(self) -> None:
        self.over = asyncio.get_running_loop().create_future()
        self.released = False

    async def open(self, _opening: object, _session: object) -> "OneMessage":
        return self

    async def opened(self) -> bytes:
        return b"opened"

    async def release(self) -> None:
        self.released = True


async def test_a_write_that_fails_when_nobody_waits_for_it_any_more_is_no_fault_of_the_server() -> None:
    faults: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, fault: faults.append(fault))
    call, supply, metrics = VanishingClient(), OneMessage(), Metrics(CollectorRegistry())
    session = StreamSession(
        call, config=ServerConfig(), registry=None, held_outs=supply, waits=Waits(metrics), metrics=metrics
    )
    serving = asyncio.ensure_future(session.serve())
    await call.write_begun.wait()
    # gRPC says that there is nothing more to read, and then cancels who serves the call.
    call.gone.set()
    for _ in range(TURNS):
        await asyncio.sleep(0)
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    assert supply.released
    call.write_fails.set()
    for _ in range(TURNS):
        await asyncio.sleep(0)
    del session, serving
    gc.collect()
    assert faults == []
