"""One rank of a trainer without a model: its optimizer step is to note which rows it was given."""

import time
from dataclasses import dataclass
from pathlib import Path

from crashlab.collective import Collective
from crashlab.samples import rows_of
from crashlab.trigger import Point, Trigger
from crashlab.weights import Checkpoint, Checkpoints, Consumed
from dataserver.client import AttemptInfo, DataClient, Step
from dataserver.errors import AttemptAliveError
from dataserver.run_spec import BatchSpec, RunSpec

RUN = "crash"
PATIENCE_S = 60.0
LEASE_POLL_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """One life of the trainer job.

    `siblings` ranks in a row share a data-parallel rank, as context parallelism has it: they get
    equal micro-batches, and their weights count once. The job resumes from the latest checkpoint,
    or from that of step `resume_from`; `by_version` gives the server the checkpoint's version and
    not its cursor. Ranks end after `stop_after`, or with the run.
    """

    world_size: int
    holder: str
    siblings: int = 1
    batch: BatchSpec | None = None
    stop_after: int | None = None
    save_every: int = 3
    resume_from: int | None = None
    by_version: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a job's things are."""

    endpoints: str
    directory: Path
    spec: RunSpec

    @property
    def checkpoints(self) -> Checkpoints:
        return Checkpoints(self.directory / "checkpoints")


class Rank:
    """State of one rank in one life."""

    def __init__(self, place: Place, life: Life, collective: Collective, trigger: Trigger) -> None:
        self.place = place
        self.life = life
        self.rank = collective.rank
        self.dp_rank = self.rank // life.siblings
        self.collective = collective
        self.trigger = trigger
        self.checkpoints = place.checkpoints
        self.consumed: list[Consumed] = []

    def train(self) -> None:
        """Begin or join the attempt, and consume steps to the end of this life."""
        with DataClient(self.place.endpoints, patience_s=PATIENCE_S) as client:
            attempt = self._join(client)
            with client.stream(
                RUN,
                attempt,
                world_rank=self.rank,
                dp_rank=self.dp_rank,
                next_step=attempt.base.step + 1,
                credits=1,
            ) as stream:
                for step in stream:
                    self._optimize(step)
                    stream.ack(step)
                    self.trigger.reach(Point.AFTER_OPTIMIZER_STEP, step.number)
                    stops = step.number == self.life.stop_after
                    if stops or step.last or step.number % self.life.save_every == 0:
                        self._save(client, attempt, step)
                    if stops:
                        return

    def _join(self, client: DataClient) -> AttemptInfo:
        """Rank 0 chooses the checkpoint and begins; the others hear of it."""
        mine = self._begin(client) if self.rank == 0 else None
        attempt, resumed_from = self.collective.all_gather(mine)[0]
        if resumed_from is not None:
            self.consumed = self.checkpoints.load(resumed_from).shard(self.rank, self.life.world_size)
        return attempt

    def _begin(self, client: DataClient) -> tuple[AttemptInfo, int | None]:
        life = self.life
        checkpoint = self._chosen()
        client.create_run(RUN, self.place.spec)
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                attempt = client.begin_attempt(
                    RUN,
                    resume=checkpoint is not None,
                    cursor=checkpoint.cursor if checkpoint and not life.by_version else None,
                    version=checkpoint.cursor.step if checkpoint else None,
                    world_size=life.world_size,
                    dp_world_size=life.world_size // life.siblings,
                    batch=life.batch,
                    holder=life.holder,
                    take_over=False,
                )
            except AttemptAliveError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(LEASE_POLL_S)
            else:
                return attempt, checkpoint.cursor.step if checkpoint else None

    def _chosen(self) -> Checkpoint | None:
        if self.life.resume_from is not None:
            return self.checkpoints.load(self.life.resume_from)
        return self.checkpoints.latest()

    def _optimize(self, step: Step) -> None:
        """Consume all micro-batches; all ranks must agree on what the step is."""
        rows = []
        for micro_batch in step:
            rows += rows_of(micro_batch)
            self.trigger.reach(Point.MID_STREAM, step.number)
        views = self.collective.all_gather((step.number, step.plan_digest, step.sync_weights, step.end))
        if len(set(views)) != 1:
            raise RuntimeError(f"ranks disagree: {views}")
        eldest = self.dp_rank * self.life.siblings
        if self.collective.all_gather(rows)[eldest] != rows:
            raise RuntimeError(f"rank {self.rank} was given {rows}, which is not what rank {eldest} was given")
        if self.rank == eldest:
            self.consumed += [Consumed(step.number, row) for row in rows]

    def _save(self, client: DataClient, attempt: AttemptInfo, step: Step) -> None:
        self.checkpoints.write_shard(attempt.number, step.number, self.rank, self.consumed)
        self.collective.barrier()
        if self.rank == 0:
            self.trigger.reach(Point.INSIDE_CHECKPOINT, step.number)
            path = self.checkpoints.publish(attempt.number, step.end)
            self.trigger.reach(Point.BEFORE_COMMIT, step.number)
            client.commit_cursor(RUN, attempt, step.end, str(path))
            self.trigger.reach(Point.AFTER_COMMIT, step.number)
        self.collective.barrier()
