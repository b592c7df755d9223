"""One stream of one rank.

    receive  open ─┬─ credit ──> credits        half-close ──> end
                   └─ ack ─────> supply
    send     opened, then per step: supply ─> step_begun, micro_batch …; perhaps offers; then end_of_run

What a step waits for besides a credit is its supply's: `attempt_supply`, `held_out`. Micro-batches are encoded ahead of
the credits, in groups (`encodings`), each of which is sent as one message, as far as credits go.
After the end of the run the server goes on reading until the client half-closes, so that the last acks arrive.
"""

import asyncio
import logging
from typing import Any

from dataserver.batching.encode import Encoded
from dataserver.config import ServerConfig
from dataserver.errors import DataServerError, InvalidRequestError, WaitExpiredError
from dataserver.hosting.call import EOF, Call
from dataserver.planning.plan import EndOfRun
from dataserver.streaming.answers import encode_end_of_run, encode_offer, encode_shutdown_hold, encode_step_begun
from dataserver.streaming.attempt_supply import AttemptSupply
from dataserver.streaming.credits import Credits
from dataserver.streaming.encodings import Encodings
from dataserver.streaming.held_out import HeldOuts
from dataserver.streaming.metrics import Metrics
from dataserver.streaming.opening import EvalOpening, Opening, parse_opening
from dataserver.streaming.registry import Registry
from dataserver.streaming.supply import Supply
from dataserver.streaming.waits import Waits
from dataserver.weight_sync import Offer, ShutdownHold

log = logging.getLogger(__name__)

# How long a message under way may take when the stream is to end.
LAST_WRITE_S = 5.0


class StreamSession:
    """Serves one `StreamMicroBatches` call."""

    def __init__(
        self,
        call: Call,
        *,
        config: ServerConfig,
        registry: Registry,
        held_outs: HeldOuts,
        waits: Waits,
        metrics: Metrics,
    ) -> None:
        self._call = call
        self._config = config
        self._registry = registry
        self._held_outs = held_outs
        self._waits = waits
        self._metrics = metrics
        self._credits = Credits()
        self._ended: asyncio.Future[DataServerError] = asyncio.get_running_loop().create_future()
        self._writing: asyncio.Future[None] | None = None

    def end(self, error: DataServerError) -> None:
        """End the stream with `error` after the message under way."""
        if not self._ended.done():
            self._ended.set_result(error)

    async def serve(self) -> None:
        """Serve the call to its end; what it raises is its status."""
        supply = await self._open(await self._read_opening())
        log.info("%s: %s streams from step %d", supply.name, supply.rank, supply.step + 1)
        try:
            with self._metrics.open_streams.track_inprogress():
                await self._exchange(supply)
        finally:
            log.info("%s: %s's stream is over, begun was step %d", supply.name, supply.rank, supply.step)
            await supply.release()

    async def _read_opening(self) -> Opening | EvalOpening:
        try:
            async with asyncio.timeout(self._config.open_wait_s):
                request = await self._call.read()
        except TimeoutError:
            raise WaitExpiredError(
                f"no `open` arrived within {self._config.open_wait_s:g} s after the call began"
            ) from None
        if request is EOF:
            raise InvalidRequestError("the stream was closed before its `open`")
        return parse_opening(request)

    async def _open(self, opening: Opening | EvalOpening) -> Supply:
        self._credits.grant(opening.credits)
        if isinstance(opening, EvalOpening):
            return await self._held_outs.open(opening, self)
        live = await self._registry.open(opening, self)
        return AttemptSupply(opening, live, self, config=self._config, registry=self._registry, waits=self._waits)

    async def _exchange(self, supply: Supply) -> None:
        """Send and receive until the client half-closes, or something ends the stream."""
        sender = asyncio.ensure_future(self._send(supply))
        receiver = asyncio.ensure_future(self._receive(supply))
        ends = (self._ended, supply.over)
        until: tuple[asyncio.Future[Any], ...] = (receiver, *ends)
        try:
            await asyncio.wait((sender, *until), return_when=asyncio.FIRST_COMPLETED)
            if sender.done() and sender.exception() is None:
                await asyncio.wait(until, timeout=self._config.end_wait_s, return_when=asyncio.FIRST_COMPLETED)
            for end in ends:
                if end.done():
                    raise end.result()
            for task in (sender, receiver):
                if task.done():
                    task.result()
            if not receiver.done():
                raise WaitExpiredError(
                    f"{supply.rank} did not close its stream within {self._config.end_wait_s:g} s "
                    "after the end of the run"
                )
        finally:
            sender.cancel()
            receiver.cancel()
            await asyncio.gather(sender, receiver, return_exceptions=True)
            await self._settle_write()

    async def _settle_write(self) -> None:
        """A status may follow only when no message is under way."""
        if self._writing is not None:
            await asyncio.wait((self._writing,), timeout=LAST_WRITE_S)

    # -- receiving ----------------------------------------------------------------------------

    async def _receive(self, supply: Supply) -> None:
        while (request := await self._call.read()) is not EOF:
            kind = request.WhichOneof("message")
            if kind == "credit":
                self._credits.grant(request.credit.micro_batches)
            elif kind == "ack":
                supply.acknowledge(request.ack.step, request.ack.offer)
            else:
                raise InvalidRequestError(f"message {kind or 'empty'} in an open stream: send `ack` or `credit`")

    # -- sending ------------------------------------------------------------------------------

    async def _send(self, supply: Supply) -> None:
        await self._write(await supply.opened(), supply)
        encodings = Encodings(supply, self._credits, self._config.max_message_bytes)
        try:
            await self._send_steps(supply, encodings)
        finally:
            await encodings.close()

    async def _send_steps(self, supply: Supply, encodings: Encodings) -> None:
        while True:
            ready = await supply.next(lambda: self._wait_for_credit(supply))
            if isinstance(ready, Offer):
                await self._write(encode_offer(ready), supply)
            elif isinstance(ready, ShutdownHold):
                await self._write(encode_shutdown_hold(ready), supply)
            elif isinstance(ready.plan, EndOfRun):
                await self._write(encode_end_of_run(ready.plan), supply)
                return
            else:
                encodings.begin(ready, ready.plan)
                await self._write(encode_step_begun(ready.plan, ready.stamp), supply)
                rounds_left = len(ready.plan.rounds)
                while rounds_left:
                    group = await encodings.take()
                    rounds_left -= len(group)
                    await self._send_group(supply, rounds_left, group)

    async def _send_group(self, supply: Supply, rounds_behind: int, group: Encoded) -> None:
        """Send micro-batches together as far as credits go; `rounds_behind` follow them in their step."""
        sent = 0
        while sent < len(group):
            await self._wait_for_credit(supply)
            count = self._credits.take(len(group) - sent)
            data = group.some(sent, count)
            sent += count
            rounds_left = rounds_behind + len(group) - sent
            if self._credits.left > rounds_left:
                supply.make_ready()
            await self._write(data, supply)
            self._metrics.micro_batches.inc(count)
            self._metrics.bytes.inc(len(data))
        self._metrics.tokens.inc(group.tokens)

    async def _wait_for_credit(self, supply: Supply) -> None:
        await self._waits.until(
            self._credits.available(),
            who=supply.name,
            cause="credits",
            limit_s=self._config.credit_wait_s,
            describe=lambda: f"credits of {supply.rank}",
        )

    async def _write(self, data: bytes, supply: Supply) -> None:
        self._writing = asyncio.ensure_future(self._call.write(data))
        # A client that goes away fails it, perhaps when nobody waits for it any more.
        self._writing.add_done_callback(lambda writing: writing.cancelled() or writing.exception())
        await self._waits.until(
            self._writing,
            who=supply.name,
            cause="transport",
            limit_s=self._config.credit_wait_s,
            describe=lambda: f"{supply.rank} to read {len(data)} bytes that it gave credit for",
        )
        self._writing.result()
