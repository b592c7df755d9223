"""What a job does about stamps: a step or an offer that says so hands the weights to the engines.

    begin      the opening offer: the weights that the attempt begins with
    step_done  a stamped step: the weights after it
    end        offers after the last step, for as long as the last version is wanted and has not landed

A step without a stamp costs nothing: no call, no collective.
"""

import logging
from collections import Counter
from collections.abc import Callable
from typing import Protocol

from transformers import PreTrainedModel

from dataserver.client import AttemptInfo
from dataserver.errors import InvalidConfigError
from dataserver.weight_sync import Offer, OrchestratorAddress, PolicyVersion, WeightSync
from trainer.agreement import agreed_offer, agreed_offers
from trainer.config import TrainerConfig
from trainer.feed import Step, StepSource
from trainer.launch import World
from trainer.metrics import Metrics, SyncFigures
from trainer.service import TrainerServer
from trainer.weights.handover import Handover
from trainer.weights.lead import Lead
from trainer.weights.outgoing import outgoing
from trainer.weights.reports import ReportThread
from trainer.weights.sync import NotReady, Ready
from trainer.weights.underway import Underway
from trainer.weights.ways import transport_maker
from trainer.weights_config import WeightsConfig

log = logging.getLogger(__name__)


class Stamps(Protocol):
    """Carries out what stamps say, or does not; the same calls on every rank."""

    def begin(self, stream: StepSource) -> None:
        """Before the first step."""

    def step_done(self, step: Step) -> None:
        """After a step's update, before its ack."""

    def end(self, stream: StepSource) -> None:
        """After the last step; returns when nothing more is wanted, and nothing is in flight."""

    def write(self, metrics: Metrics) -> None:
        """Write the figures of the syncs that have ended since the last call."""

    def close(self) -> None:
        """Let go at once. Idempotent."""


class IgnoredStamps:
    """For a job without `[weights]`: whoever asked for weights gets none."""

    def __init__(self) -> None:
        self._told = False

    def begin(self, stream: StepSource) -> None:
        """Nothing: the stream takes no offers."""

    def step_done(self, step: Step) -> None:
        """Say, once, that a stamp is ignored."""
        if step.sync_weights and not self._told:
            self._told = True
            log.warning(
                "step %d asks for its weights, and so may others: this job has no [weights] in its configuration, "
                "so engines get none of them",
                step.number,
            )

    def end(self, stream: StepSource) -> None:
        """Nothing is in flight."""

    def write(self, metrics: Metrics) -> None:
        """There are no figures."""

    def close(self) -> None:
        """Nothing to let go of."""


class EngineStamps:
    """Hands weights over when a stamp says so."""

    def __init__(
        self, *, config: WeightsConfig, job: TrainerConfig, world: World, model: PreTrainedModel, attempt: AttemptInfo,
        deliver: Callable[[WeightSync], None],
    ) -> None:  # fmt: skip
        self._world = world
        self._attempt = attempt.number
        # Until the opening offer says who made it: the attempt before, where that version survives.
        self._version = PolicyVersion(attempt=attempt.number, number=attempt.version)
        self._counts: Counter[str] = Counter()
        self._server: TrainerServer | None = None
        underway, lead = Underway(), None
        sent = outgoing(model, config, job.model.dtype)
        transport_of = transport_maker(config, world, sent)
        if world.is_first:
            self._server = TrainerServer(
                config, run=job.run.name, world_size=world.size, version=lambda: self._version, underway=underway
            )
            lead = Lead(
                config=config, run=job.run.name, attempt=attempt, outgoing=sent, transport_of=transport_of,
                reports=ReportThread(deliver), trainer_address=self._server.address, underway=underway,
            )  # fmt: skip
        self._handover = Handover(world=world, outgoing=sent, transport_of=transport_of, underway=underway, lead=lead)

    def begin(self, stream: StepSource) -> None:
        """Take the opening offer. Raises `InvalidConfigError` where that shows that no version can ever land."""
        offer = stream.opening_offer()
        agreed_offer(offer, self._world)
        answer = self._take(stream, offer)
        if isinstance(answer, NotReady) and answer.never:
            self._handover.finish()
            raise InvalidConfigError(f"[weights]: {answer.detail}")

    def step_done(self, step: Step) -> None:
        """Hand a stamped step's weights over."""
        self._version = PolicyVersion(attempt=self._attempt, number=step.number)
        if step.sync_weights:
            self._hand_over(step.orchestrator)

    def end(self, stream: StepSource) -> None:
        """Take the offers that follow the last step, then wait for the commit in flight and the reports."""
        for offer in agreed_offers(stream.offers(), self._world):
            self._take(stream, offer)
        self._handover.finish()

    def write(self, metrics: Metrics) -> None:
        """Write, on rank 0."""
        for ended, size in self._handover.settled():
            self._counts[ended.outcome.value] += 1
            metrics.write(
                SyncFigures(
                    attempt=ended.version.attempt,
                    step=ended.version.number,
                    sync_id=ended.sync_id,
                    sync_outcome=ended.outcome.value,
                    sync_landed=self._counts["landed"],
                    sync_failed=self._counts["failed"],
                    sync_skipped=self._counts["skipped"],
                    sync_bytes=size,
                    sync_stall_s=ended.stall_seconds,
                    sync_s=ended.seconds,
                )
            )

    def close(self) -> None:
        """Stop answering the orchestrator."""
        if self._server is not None:
            self._server.close()

    def _take(self, stream: StepSource, offer: Offer) -> Ready | NotReady | None:
        self._version = offer.version
        answer = self._hand_over(offer.orchestrator) if offer.sync_weights else None
        stream.ack_offer(offer)
        return answer

    def _hand_over(self, orchestrator: OrchestratorAddress | None) -> Ready | NotReady:
        return self._handover.hand_over(self._version, orchestrator)


def stamps_of(
    config: TrainerConfig,
    world: World,
    model: PreTrainedModel,
    attempt: AttemptInfo,
    deliver: Callable[[WeightSync], None],
) -> Stamps:
    """As the configuration says. `deliver` reports a sync that has ended to the data server."""
    if config.weights is None:
        return IgnoredStamps()
    return EngineStamps(config=config.weights, job=config, world=world, model=model, attempt=attempt, deliver=deliver)
