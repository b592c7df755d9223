"""One stream of one rank.

    receive  open ─┬─ credit ──> credits        half-close ──> end
                   └─ ack ─────> attempt
    send     opened, then per step: plan ─> credit ─> pacing ─> seal ─> step_begun, micro_batch …; then end_of_run

A step is sealed only when its first micro-batch may go at once: pacing permits it and the rank has a credit for it.
The seal may be made while the last micro-batches of the step before are on their way. Within a sealed step a few
micro-batches are encoded ahead of the credits. After the end of the run the server goes on reading
until the client half-closes, so that the last acks arrive.
"""

import asyncio
import logging
from collections import deque
from typing import Any

from dataserver.batching.encode import encode_planned
from dataserver.config import ServerConfig
from dataserver.errors import DataServerError, InvalidRequestError, WaitExpiredError
from dataserver.planning.plan import EndOfRun, Plan
from dataserver.streaming.answers import encode_end_of_run, encode_opened, encode_step_begun
from dataserver.streaming.attempts import LiveAttempt, SealedStep, waited_for
from dataserver.streaming.call import EOF, Call
from dataserver.streaming.credits import Credits
from dataserver.streaming.metrics import Metrics
from dataserver.streaming.opening import Opening, parse_opening
from dataserver.streaming.registry import Registry
from dataserver.streaming.threads import Threads
from dataserver.streaming.waits import Waits

log = logging.getLogger(__name__)

# Micro-batches of a sealed step that are encoded before their credit is there. Memory: this many messages a stream.
ENCODED_AHEAD = 2

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
        threads: Threads,
        waits: Waits,
        metrics: Metrics,
    ) -> None:
        self._call = call
        self._config = config
        self._registry = registry
        self._threads = threads
        self._waits = waits
        self._metrics = metrics
        self._credits = Credits()
        self._ended: asyncio.Future[DataServerError] = asyncio.get_running_loop().create_future()
        self._writing: asyncio.Future[None] | None = None
        self._begun_step = 0

    def end(self, error: DataServerError) -> None:
        """End the stream with `error` after the message under way."""
        if not self._ended.done():
            self._ended.set_result(error)

    async def serve(self) -> None:
        """Serve the call to its end; what it raises is its status."""
        opening = await self._read_opening()
        live = await self._registry.open(opening, self)
        rank = opening.world_rank
        log.info(
            "run %s attempt %d: rank %d streams from step %d",
            opening.run, opening.attempt, rank, opening.next_step,
        )  # fmt: skip
        try:
            with self._metrics.open_streams.track_inprogress():
                await self._exchange(opening, live)
        except asyncio.CancelledError:
            self._registry.release_soon(live, rank, self)
            raise
        except BaseException:
            await self._registry.release(live, rank, self)
            raise
        else:
            await self._registry.release(live, rank, self)
        finally:
            log.info("run %s attempt %d: rank %d's stream is over, begun was step %d",
                     opening.run, opening.attempt, rank, self._begun_step)  # fmt: skip

    async def _read_opening(self) -> Opening:
        try:
            async with asyncio.timeout(self._config.open_wait_s):
                request = await self._call.read()
        except TimeoutError:
            raise WaitExpiredError(
                f"no `open` arrived within {self._config.open_wait_s:g} s after the call began"
            ) from None
        if request is EOF:
            raise InvalidRequestError("the stream was closed before its `open`")
        opening = parse_opening(request)
        self._credits.grant(opening.credits)
        self._begun_step = opening.next_step - 1
        return opening

    async def _exchange(self, opening: Opening, live: LiveAttempt) -> None:
        """Send and receive until the client half-closes, or something ends the stream."""
        sender = asyncio.ensure_future(self._send(opening, live))
        receiver = asyncio.ensure_future(self._receive(opening, live))
        ends = (self._ended, live.over)
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
                    f"rank {opening.world_rank} did not close its stream within {self._config.end_wait_s:g} s "
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
            if self._writing.done() and not self._writing.cancelled():
                self._writing.exception()

    # -- receiving ----------------------------------------------------------------------------

    async def _receive(self, opening: Opening, live: LiveAttempt) -> None:
        while (request := await self._call.read()) is not EOF:
            kind = request.WhichOneof("message")
            if kind == "credit":
                self._credits.grant(request.credit.micro_batches)
            elif kind == "ack":
                self._acknowledge(request.ack.step, opening, live)
            else:
                raise InvalidRequestError(f"message {kind or 'empty'} in an open stream: send `ack` or `credit`")

    def _acknowledge(self, step: int, opening: Opening, live: LiveAttempt) -> None:
        if not 0 <= step <= self._begun_step:
            raise InvalidRequestError(
                f"rank {opening.world_rank} acknowledged step {step}, but step {self._begun_step} is the last "
                "that this stream began"
            )
        live.acknowledge(opening.world_rank, step)

    # -- sending ------------------------------------------------------------------------------

    async def _send(self, opening: Opening, live: LiveAttempt) -> None:
        await self._write(encode_opened(live.attempt.base, self._registry.server_id), opening)
        step = opening.next_step
        while True:
            plan = await live.plan(step)
            if isinstance(plan, Plan):
                await self._wait_for_credit(opening)
            await self._waits.until(
                live.pacing.permitted(step),
                run=opening.run,
                cause="pacing",
                limit_s=self._config.pacing_wait_s,
                describe=lambda step=step: waited_for(live, step),  # type: ignore[misc]
            )
            sealed = await live.seal(step)
            if isinstance(sealed.plan, EndOfRun):
                await self._write(encode_end_of_run(sealed.seal, sealed.plan), opening)
                return
            live.prefetch(step)
            self._begun_step = step
            await self._write(encode_step_begun(sealed.seal, sealed.plan), opening)
            await self._send_micro_batches(opening, live, sealed, sealed.plan)
            step += 1

    async def _send_micro_batches(self, opening: Opening, live: LiveAttempt, sealed: SealedStep, plan: Plan) -> None:
        ahead: deque[asyncio.Task[bytes]] = deque()
        started = 0
        try:
            for round_index in range(len(plan.rounds)):
                while started < len(plan.rounds) and started <= round_index + ENCODED_AHEAD:
                    ahead.append(asyncio.create_task(self._encode(opening, live, sealed, plan, started)))
                    started += 1
                data = await ahead.popleft()
                await self._wait_for_credit(opening)
                self._credits.take()
                rounds_left = len(plan.rounds) - round_index - 1
                if rounds_left <= ENCODED_AHEAD and self._credits.left > rounds_left:
                    live.seal_meanwhile(plan.step + 1)
                await self._write(data, opening)
                self._metrics.micro_batches.inc()
                self._metrics.bytes.inc(len(data))
                self._metrics.tokens.inc(int(plan.lengths[plan.rounds[round_index][opening.dp_rank]].sum()))
        finally:
            for task in ahead:
                task.cancel()

    async def _encode(
        self, opening: Opening, live: LiveAttempt, sealed: SealedStep, plan: Plan, round_index: int
    ) -> bytes:
        return await self._threads.encode(
            encode_planned,
            plan,
            live.context.table,
            round_index=round_index,
            dp_rank=opening.dp_rank,
            alignment=live.attempt.batch.alignment,
            pad_to=live.attempt.batch.pad_to,
            sync_weights=sealed.seal.sync_weights,
        )

    async def _wait_for_credit(self, opening: Opening) -> None:
        await self._waits.until(
            self._credits.available(),
            run=opening.run,
            cause="credits",
            limit_s=self._config.credit_wait_s,
            describe=lambda: f"credits of rank {opening.world_rank}",
        )

    async def _write(self, data: bytes, opening: Opening) -> None:
        self._writing = asyncio.ensure_future(self._call.write(data))
        await self._waits.until(
            self._writing,
            run=opening.run,
            cause="transport",
            limit_s=self._config.credit_wait_s,
            describe=lambda: f"rank {opening.world_rank} to read {len(data)} bytes that it gave credit for",
        )
        self._writing.result()
