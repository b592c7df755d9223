"""Configurations, feeds from memory, and jobs on them."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from dataserver.client import AttemptInfo
from dataserver.cursor import Cursor
from dataserver.errors import UnavailableError
from dataserver.testing import attempt_info
from dataserver.weight_sync import Offer, WeightSync
from trainer.checkpoint import Checkpoints, Lineage
from trainer.config import TrainerConfig
from trainer.config_file import parse_config
from trainer.launch import World
from trainer.retention import Retention
from trainerlab.samples import FINGERPRINT, VOCABULARY, MemoryStep

RUN = "chat"


def tiny_model(model_type: str = "qwen3", *, tied: bool = False) -> dict[str, Any]:
    return {
        "model_type": model_type,
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": 256,
        "tie_word_embeddings": tied,
    }


def job_config(directory: Path, **sections: dict[str, Any]) -> TrainerConfig:
    """A tiny job; `sections` are laid over it field by field."""
    fields: dict[str, dict[str, Any]] = {
        "run": {
            "name": RUN,
            "order": {"sources": [{"store": "chat"}], "max_length": 24},
            "batch": {"step_samples": 8, "micro_batch_tokens": 64},
        },
        "model": {"config": tiny_model()},
        "optim": {"lr": 1e-2},
        "checkpoint": {"dir": str(directory / "checkpoints")},
        "parallel": {"device": "cpu"},
        "metrics": {"jsonl": str(directory / "metrics.jsonl")},
    }
    for section, values in sections.items():
        fields[section] = fields.get(section, {}) | values
    return parse_config(fields, "laboratory")


class MemorySource:
    """Notes in `events` what it is told, in order."""

    def __init__(
        self, steps: Sequence[MemoryStep], offers: Sequence[Offer], events: list[str], *, lost: bool = False
    ) -> None:
        self._lost = lost
        self._steps = steps
        self._offers = offers
        self._events = events

    def __iter__(self) -> Any:
        return iter(self._steps)

    def ack(self, step: MemoryStep) -> None:
        self._events.append(f"ack {step.number}")

    def opening_offer(self) -> Offer:
        return self._offers[0]

    def offers(self) -> Any:
        yield from self._offers[1:]
        if self._lost:
            raise UnavailableError("no server answers")

    def ack_offer(self, offer: Offer) -> None:
        self._events.append(f"ack offer {offer.number}")

    def close(self) -> None:
        """Nothing to let go of."""


class MemoryFeed:
    """Plays back steps, `steps[i][r]` being step i + 1 of rank r, and remembers what it was told.

    `lost`: after the offers no server answers.
    """

    def __init__(
        self,
        steps: Sequence[Sequence[MemoryStep]],
        *,
        lineage: Lineage | None = None,
        commits_arrive: bool = True,
        offers: Sequence[Offer] = (),
        lost: bool = False,
    ) -> None:
        self.steps = steps
        self.lost = lost
        self.offers = offers
        self.events: list[str] = []
        self.reported: list[WeightSync] = []
        self._commits_arrive = commits_arrive
        self.lineage = lineage or Lineage(
            run=RUN, run_uid="uid", order_fingerprints=(FINGERPRINT,), attempt=0, base_step=0
        )
        self.begun: list[Cursor | None] = []
        self.commits: list[tuple[int, int, str]] = []

    def await_stores(self, names: Iterable[str]) -> None:
        """Whatever is played back is there."""

    def create_run(self, vocab_size: int, *, wait_alive: bool = False) -> Lineage:
        assert vocab_size == VOCABULARY
        return self.lineage

    def begin(
        self, *, resume: Cursor | None, world_size: int, dp_world_size: int, holder: str, take_over: bool
    ) -> AttemptInfo:
        self.begun.append(resume)
        return attempt_info(self.lineage.attempt + 1, base=resume)

    def open(
        self, *, attempt: AttemptInfo, world_rank: int, dp_rank: int, next_step: int, takes_offers: bool = False
    ) -> MemorySource:
        assert takes_offers == bool(self.offers)
        mine = [ranks[dp_rank] for ranks in self.steps[next_step - 1 :]]
        return MemorySource(mine, self.offers, self.events, lost=self.lost)

    def report(self, sync: WeightSync) -> None:
        self.reported.append(sync)

    def commit(self, *, attempt: AttemptInfo, cursor: Cursor, uri: str) -> bool:
        self.commits.append((attempt.number, cursor.step, uri))
        return self._commits_arrive

    def close(self) -> None:
        """Nothing to let go of."""


def open_job(config: TrainerConfig, world: World) -> Any:
    """A job on a model before its first step."""
    from trainer.loop import Job
    from trainer.stamps import IgnoredStamps
    from trainer.train import build

    model, optimizer = build(config, world, None)
    checkpoints = Checkpoints(config.checkpoint.dir)
    return Job(
        config=config,
        world=world,
        feed=MemoryFeed([]),
        checkpoints=checkpoints,
        retention=Retention(checkpoints, "uid"),
        model=model,
        optimizer=optimizer,
        run_uid="uid",
        attempt=attempt_info(),
        held_out=None,
        stamps=IgnoredStamps(),
    )
