"""The state of a fake engine: one version of the weights, whole, or a breach that it writes down.

Events, each with its details (`events(kind)`):

    torn       tokens were asked of weights that were a mix, as an update was open, or that sleep had dropped
    stale      a sample was begun on a prefix that older weights computed
    refused    a call came out of order, as vLLM refuses it too
    synced     an update finished: label, checksum, sync_id
    generated  a sample came to its end: label and tokens of each span
    lost       a worker of the group lost the others
    asleep     somebody put it to sleep
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from dataserver.weight_buckets import TensorSpec
from orchestrator.engines.interface import Transfer
from orchestrator.testing.events import Events
from orchestrator.testing.fake_tokens import FIRST_CHECKSUM
from orchestrator.testing.fake_transfer import FakeTransfer
from orchestrator.testing.faults import Fault, Faults

# From this level of sleep on weights are dropped, and are not there again after it.
DROPPING_LEVEL = 2
DROPPED = ""

# The token of (checksum of the weights, their label, place); None ends the sample.
Speaker = Callable[[str, str, int], int | None]


class RefusedError(Exception):
    """The call is out of order; answered as HTTP 500, as vLLM does."""


@dataclass(slots=True)
class FakeSample:
    """A sample in work. `spans`: label and tokens of each version in turn."""

    tokens: list[int] = field(default_factory=list)
    spans: list[list[Any]] = field(default_factory=list)
    aborted: bool = False


class FakeEngine:
    """`tensors`: what its model holds, None for whatever comes. `die`: how it ends; `workers`: members of a group."""

    def __init__(
        self,
        *,
        die: Callable[[], None],
        events: Events,
        tensors: Sequence[TensorSpec] | None = None,
        workers: int = 1,
        token_s: float = 0.0,
    ) -> None:
        self.workers = workers
        self.token_s = token_s
        self.faults = Faults(die)
        self.label = "default"
        self.checksum = FIRST_CHECKSUM
        self.paused = False
        self.asleep = False
        self.ended = False
        self.transfer = FakeTransfer(tensors, workers, events, self.faults)
        self._events = events
        self._changed = threading.Condition()
        self._running: list[FakeSample] = []
        # Which weights computed the cached prefix of a prompt.
        self._prefixes: dict[tuple[int, ...], str] = {}

    def fault(self, fault: Fault) -> None:
        """Arms a fault."""
        self.faults.add(fault)

    def events(self, kind: str | None = None) -> list[dict[str, Any]]:
        """What happened, of one kind or all."""
        return self._events.read(kind)

    @property
    def in_flight(self) -> int:
        """Samples in work."""
        return len(self._running)

    def end(self) -> None:
        """Lets go of all who wait for it: nobody answers them."""
        self.faults.release()
        with self._changed:
            self.ended = True
            self._changed.notify_all()

    def pause(self) -> None:
        """Freezes what is in flight."""
        with self._changed:
            self.paused = True

    def resume(self) -> None:
        """Goes on; whatever is asked of it while an update is open, or while it sleeps, is torn."""
        with self._changed:
            self.paused = False
            self._changed.notify_all()

    def sleep(self, level: int) -> None:
        """Gives up what is in flight, and makes no tokens; from level 2 on its weights are dropped."""
        with self._changed:
            for sample in self._running:
                sample.aborted = True
            self.paused = self.asleep = True
            if level >= DROPPING_LEVEL:
                self.checksum = DROPPED
        self._events.write("asleep", level=level)

    def wake_up(self) -> None:
        """Makes tokens again; with weights that were dropped they are torn."""
        with self._changed:
            self.asleep = False
        self.resume()

    def abort(self) -> int:
        """Gives up what is in flight; refused while paused, where it has crashed engines."""
        with self._changed:
            if self.paused:
                raise self._refused("abort_requests while paused")
            for sample in self._running:
                sample.aborted = True
            return len(self._running)

    def announce(self, transfer: Transfer) -> None:
        """Compares what is announced with the model."""
        if self.transfer.open:
            raise self._refused("init_weight_transfer_engine while an update is open")
        self.transfer.announce(transfer)

    def start(self) -> None:
        """Opens an update."""
        if self.transfer.open or self.transfer.announced is None or self.transfer.problem:
            raise self._refused("start_weight_update while one is open, or without an accepted transfer")
        if not self.paused:
            raise self._refused("start_weight_update while it generates")
        if self.asleep:
            raise self._refused("start_weight_update while it sleeps, which has ended engines")
        self.transfer.open = True

    def update(self) -> None:
        """Loads what is sent."""
        if not self.transfer.open or self.transfer.checksum:
            raise self._refused("update_weights without start_weight_update, or twice")
        self.transfer.receive()

    def finish(self, label: str) -> None:
        """Makes what arrived the engine's weights."""
        transfer, checksum = self.transfer.announced, self.transfer.checksum
        if not self.transfer.open or not checksum or transfer is None:
            raise self._refused("finish_weight_update without a whole update")
        with self._changed:
            self.checksum, self.label, self.transfer.open = checksum, label, False
        self._events.write("synced", label=label, checksum=checksum, sync_id=transfer.sync_id)

    def reset_prefix_cache(self) -> None:
        """Forgets what was computed."""
        with self._changed:
            self._prefixes.clear()

    def generate(self, prompt: Sequence[int], speak: Speaker, limit: int) -> FakeSample:
        """A whole sample, or one that was given up."""
        sample = FakeSample()
        with self._changed:
            self._running.append(sample)
        try:
            while len(sample.tokens) < limit and self._step(prompt, sample, speak):
                time.sleep(self.token_s)
        finally:
            with self._changed:
                self._running.remove(sample)
        self._events.write("generated", spans=sample.spans, aborted=sample.aborted)
        return sample

    def _step(self, prompt: Sequence[int], sample: FakeSample, speak: Speaker) -> bool:
        with self._changed:
            while self.paused and not self.ended:
                self._changed.wait()
            if self.ended:
                raise RefusedError("it has ended")
            if sample.aborted:
                return False
            self._look_for_breaches(prompt, sample)
            token = speak(self.checksum, self.label, len(sample.tokens))
            if token is None:
                return False
            sample.tokens.append(token)
            if not sample.spans or sample.spans[-1][0] != self.label:
                sample.spans.append([self.label, 0])
            sample.spans[-1][1] += 1
            return True

    def _look_for_breaches(self, prompt: Sequence[int], sample: FakeSample) -> None:
        if self.transfer.open or self.asleep or self.checksum == DROPPED:
            self._events.write("torn", label=self.label, origins=self.transfer.origins)
        elif not sample.tokens and self._prefixes.setdefault(tuple(prompt), self.checksum) != self.checksum:
            self._events.write("stale", label=self.label)

    def _refused(self, what: str) -> RefusedError:
        self._events.write("refused", what=what)
        return RefusedError(what)
