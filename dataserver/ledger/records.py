"""Snapshots of rows, as the rules judge them and the transactions pass them on."""

from dataclasses import dataclass
from typing import Any

from dataserver.cursor import Cursor
from dataserver.ledger.interface import RunStage
from dataserver.ledger.steps import AttemptKey
from dataserver.planning.stages import Stage
from dataserver.run_spec import BatchSpec, OrderSpec, RunSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRow:
    """A stage as a run's row has it. `order` is what `OrderSpec.model_dump` gives: most transactions never read it."""

    first_step: int
    order_fingerprint: str
    epoch_samples: int
    order: dict[str, Any]

    def read(self) -> RunStage:
        """The stage as others see it."""
        stage = Stage(first_step=self.first_step, order=OrderSpec.model_validate(self.order))
        return RunStage(stage=stage, order_fingerprint=self.order_fingerprint, epoch_samples=self.epoch_samples)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """A run's row. `spec` is JSON: most transactions never read it. `later_stages` are those after the first.

    `order_fingerprint` and `epoch_samples` are the first stage's.
    """

    uid: str
    name: str
    spec: str
    order_fingerprint: str
    epoch_samples: int
    later_stages: tuple[StageRow, ...]
    create_time: float
    last_attempt: int
    current_attempt: AttemptKey | None
    committed: Cursor
    sealed_step: int
    ended: bool
    last_requested: bool
    shutdown_deadline: float | None

    @property
    def first_steps(self) -> tuple[int, ...]:
        """Where the stages begin."""
        return 1, *(stage.first_step for stage in self.later_stages)

    @property
    def fingerprints(self) -> tuple[str, ...]:
        """Of the stages."""
        return self.order_fingerprint, *(stage.order_fingerprint for stage in self.later_stages)

    def read_spec(self) -> RunSpec:
        """The run's spec."""
        return RunSpec.model_validate_json(self.spec)

    def read_stages(self) -> tuple[RunStage, ...]:
        """All stages."""
        first = RunStage(
            stage=Stage(first_step=1, order=self.read_spec().order),
            order_fingerprint=self.order_fingerprint,
            epoch_samples=self.epoch_samples,
        )
        return first, *(stage.read() for stage in self.later_stages)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRow:
    """A rank of the current attempt. `dp_rank` and `takes_offers` are None until its first open fixed them."""

    world_rank: int
    dp_rank: int | None
    takes_offers: bool | None
    acked_step: int
    acked_offer: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginRequest:
    """The arguments of `begin_attempt`, as given, and the id that the attempt is to have."""

    resume: bool
    cursor: Cursor | None
    version: int | None
    world_size: int
    dp_world_size: int
    batch: BatchSpec | None
    holder: str
    take_over: bool
    attempt_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRequest:
    """The arguments of `open_stream`, as given."""

    attempt: AttemptKey
    world_rank: int
    dp_rank: int
    next_step: int
    stream_id: str
    takes_offers: bool
    acked_offer: int
