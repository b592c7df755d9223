"""What ranks say about an attempt, told to the ledger, and what the ledger knows of ranks elsewhere.

Acks are gathered and written together: one transaction for all ranks that acknowledge at about the same time.
"""

import asyncio
import logging
from collections.abc import Callable, Collection

from dataserver.errors import DataServerError, RunNotFoundError, StaleAttemptError
from dataserver.ledger.interface import Attempt, Ledger, Run
from dataserver.streaming.acks import Acks
from dataserver.streaming.metrics import Metrics
from dataserver.streaming.pacing import Pacing
from dataserver.streaming.threads import Threads

log = logging.getLogger(__name__)

# Acks that arrive within this time share a transaction. While every rank streams from here nobody waits for what the
# ledger knows, and they may be gathered for longer.
ACK_TICK_S = 0.003
LOCAL_ACK_TICK_S = 0.05

# How often the ledger is asked while a stream here waits for ranks elsewhere, and otherwise, to notice a newer attempt.
BUSY_POLL_S = 0.05
IDLE_POLL_S = 0.5

# Pause after the ledger failed; acks are kept meanwhile.
RETRY_S = 0.5


class Attendant:
    """Looks after one attempt until `end` is called with what ended it, or `close`.

    `local_ranks`: world ranks that stream from here; it changes under way.
    """

    def __init__(
        self,
        run: Run,
        attempt: Attempt,
        pacing: Pacing,
        local_ranks: Collection[int],
        *,
        end: Callable[[DataServerError], None],
        ledger: Ledger,
        threads: Threads,
        metrics: Metrics,
    ) -> None:
        self._run_name = run.name
        self._run_uid = run.uid
        self._attempt = attempt
        self._pacing = pacing
        self._local_ranks = local_ranks
        self._end = end
        self._ledger = ledger
        self._threads = threads
        self._metrics = metrics
        self._acks = Acks(lambda acks: threads.ledger(ledger.record_acks, run.uid, attempt.key, acks))
        self._offer_acks = Acks(lambda acks: threads.ledger(ledger.ack_offers, run.uid, attempt.key, acks))
        self._wake = asyncio.Event()
        self._attending = asyncio.get_running_loop().create_task(self._attend())

    def acknowledge(self, world_rank: int, step: int, offer: int) -> None:
        """Note that a rank consumed `step`, and is done with `offer`, and with all before. The ledger is told soon."""
        if self._pacing.acknowledge(world_rank, step):
            self._acks.add(world_rank, step)
            self._wake.set()
        if offer:
            self._offer_acks.add(world_rank, offer)
            self._wake.set()

    async def flush(self) -> None:
        """Tell the ledger all acks that it was not told yet."""
        progress = await self._acks.flush()
        if progress is not None:
            self._pacing.update(progress)
            self._metrics.consumed_step.labels(self._run_name).set(self._pacing.consumed_step)
        await self._offer_acks.flush()

    def close(self) -> None:
        """Stop. Idempotent."""
        self._attending.cancel()

    async def _attend(self) -> None:
        """Write acks and look for progress elsewhere, until the attempt is over."""
        while True:
            await self._pause()
            try:
                if self._acks.waiting or self._offer_acks.waiting:
                    await self.flush()
                else:
                    await self._poll()
            except (StaleAttemptError, RunNotFoundError) as error:
                self._end(error)
                return
            except DataServerError as error:
                log.warning("run %s attempt %d: %s", self._run_name, self._attempt.number, error.message)
                await asyncio.sleep(RETRY_S)
            except Exception:
                log.exception("run %s attempt %d: looking after it failed", self._run_name, self._attempt.number)
                await asyncio.sleep(RETRY_S)

    async def _pause(self) -> None:
        elsewhere = self._pacing.waiting and not set(self._local_ranks) >= set(self._pacing.laggards())
        try:
            async with asyncio.timeout(BUSY_POLL_S if elsewhere else IDLE_POLL_S):
                await self._wake.wait()
            all_here = len(self._local_ranks) == self._attempt.world_size
            await asyncio.sleep(LOCAL_ACK_TICK_S if all_here else ACK_TICK_S)
        except TimeoutError:
            pass
        self._wake.clear()

    async def _poll(self) -> None:
        progress = await self._threads.ledger(self._ledger.progress, self._run_uid)
        if progress.attempt != self._attempt.key:
            raise StaleAttemptError(
                f"run {self._run_name!r}: attempt {self._attempt.number} is over, attempt {progress.attempt} has begun",
                attempt=progress.attempt.number,
            )
        self._pacing.update(progress)
