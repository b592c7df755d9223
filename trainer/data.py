"""The data server as the feed of a run: connections, and what is told to whom."""

import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from dataserver.client import AttemptInfo, DataClient, RunInfo, StepStream
from dataserver.cursor import Cursor
from dataserver.errors import (
    AttemptAliveError,
    PreconditionError,
    RunNotFoundError,
    UnavailableError,
    WaitExpiredError,
)
from dataserver.eval_spec import EvalSpec
from dataserver.hosting.credentials import read_token
from dataserver.weight_sync import WeightSync
from trainer.checkpoint import Lineage
from trainer.config import DataConfig, RunConfig

# A commit that cannot be delivered is harmless, as the checkpoint wins over the ledger: nobody is kept waiting for it.
COMMIT_PATIENCE_S = 5.0
# A lease is some ten seconds or more; asking each second costs the ledger nothing.
ASK_EVERY_S: Final = 1.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """How a data server is reached. `addresses`: `HOST:PORT[,HOST:PORT...]`."""

    addresses: str
    config: DataConfig

    def connect(self, patience_s: float) -> DataClient:
        """A client, which connects at its first call. Reads the token; raises `InvalidConfigError`."""
        token = None if self.config.token_file is None else read_token(self.config.token_file)
        return DataClient(self.addresses, token=token, ca=self.config.ca_file, patience_s=patience_s)


class ServerFeed:
    """The data server as a feed of one run."""

    def __init__(self, endpoint: Endpoint, run: RunConfig) -> None:
        self._run = run
        self._config = endpoint.config
        self._client = endpoint.connect(self._config.patience_s)
        self._wait_alive_s = self._config.wait_alive_s
        self._chosen_after = 0
        self._committer = endpoint.connect(COMMIT_PATIENCE_S)

    def await_stores(self, names: Iterable[str]) -> None:
        """Wait for stores that are being rendered, as long as they come nearer; raises `StoreNotFoundError`."""
        for name in sorted({*names, *self._amended()}):
            self._client.await_store(name)

    def create_run(self, vocab_size: int, *, wait_alive: bool = False) -> Lineage:
        """Create or find the run; raises `RunConflictError` when its order is another."""
        run = self._client.create_run(self._run.name, self._run.spec(vocab_size))
        if wait_alive:
            run = self._after_predecessor(run)
        self._chosen_after = _attempt_number(run)
        attempt, base_step = self._last_base(run)
        stages = tuple(stage.order_fingerprint for stage in run.stages)
        return Lineage(run=run.name, run_uid=run.uid, order_fingerprints=stages, attempt=attempt, base_step=base_step)

    def begin(
        self, *, resume: Cursor | None, world_size: int, dp_world_size: int, holder: str, take_over: bool
    ) -> AttemptInfo:
        """Begin an attempt, waiting for one that is alive to end as long as `create_run` left of `wait_alive_s`.

        Raises `PreconditionError` when another attempt began since `create_run`: what was chosen then is older.
        """
        newest = _attempt_number(self._client.get_run(self._run.name))
        if newest != self._chosen_after:
            raise PreconditionError(
                f"run {self._run.name!r}: attempt {newest} began after this job had chosen what to go on from; going "
                "on would undo its steps; start again, to choose anew"
            )
        attempt = self._client.begin_attempt(
            self._run.name,
            resume=resume is not None,
            cursor=resume,
            world_size=world_size,
            dp_world_size=dp_world_size,
            batch=self._run.batch,
            holder=holder,
            take_over=take_over,
            wait_alive_s=self._wait_alive_s,
        )
        self._chosen_after = attempt.number
        return attempt

    def open(
        self, *, attempt: AttemptInfo, world_rank: int, dp_rank: int, next_step: int, takes_offers: bool = False
    ) -> StepStream:
        """Open this rank's stream."""
        return self._client.stream(
            self._run.name,
            attempt,
            world_rank=world_rank,
            dp_rank=dp_rank,
            next_step=next_step,
            credits=self._config.credits,
            takes_offers=takes_offers,
        )

    def commit(self, *, attempt: AttemptInfo, cursor: Cursor, uri: str) -> bool:
        """Tell the ledger, unless the server is away."""
        try:
            self._committer.commit_cursor(self._run.name, attempt, cursor, uri)
        except (UnavailableError, WaitExpiredError) as error:
            log.warning(
                "the commit of step %d did not arrive; its checkpoint is complete, and older ones are kept: %s",
                cursor.step,
                error,
            )
            return False
        return True

    def report(self, sync: WeightSync) -> None:
        """Tell the ledger, waiting for a server that is away."""
        self._client.report_sync(self._run.name, sync)

    def held_out(self, spec: EvalSpec, *, dp_rank: int, dp_world_size: int) -> StepStream:
        """Open a held-out store."""
        stream = self._client.eval_stream(
            spec, dp_rank=dp_rank, dp_world_size=dp_world_size, credits=self._config.credits
        )
        return stream.steps

    def close(self) -> None:
        """Close streams and connections."""
        self._client.close()
        self._committer.close()

    def _amended(self) -> set[str]:
        """The stores of the run's stages, if there is a run: those of later ones are not in the configuration."""
        try:
            stages = self._client.get_run(self._run.name).stages
        except RunNotFoundError:
            return set()
        return {source.store for stage in stages for source in stage.order.sources}

    def _after_predecessor(self, run: RunInfo) -> RunInfo:
        """The run as it stands when its attempt has ended; raises `AttemptAliveError` when `wait_alive_s` is over."""
        begin = time.monotonic()
        told = None
        while (attempt := run.attempt) is not None and attempt.lease_expire_time > run.read_time:
            left = self._wait_alive_s - (time.monotonic() - begin)
            if left <= 0:
                raise AttemptAliveError(
                    f"run {run.name!r}: attempt {attempt.number} is still alive after {self._wait_alive_s:g} s, "
                    f"{attempt.holder!r} holds it; end it, wait longer (data.wait_alive_s), or --take-over",
                    attempt=attempt.number,
                )
            if told != attempt.attempt_id:
                told = attempt.attempt_id
                log.warning(
                    "run %s: waiting since %s, at most %g s, for attempt %d to end before a checkpoint is chosen: "
                    "%r holds it; --take-over ends it",
                    run.name, time.strftime("%H:%M:%S"), left, attempt.number, attempt.holder,
                )  # fmt: skip
            time.sleep(min(ASK_EVERY_S, left))
            run = self._client.get_run(run.name)
        self._wait_alive_s = max(0.0, self._wait_alive_s - (time.monotonic() - begin))
        return run

    def _last_base(self, run: RunInfo) -> tuple[int, int]:
        """Attempt number and step at which the run was last begun or rewound."""
        if run.attempt is not None:
            return run.attempt.number, run.attempt.base.step
        rewinds = [event for event in self._client.list_run_events(run.name) if event.kind == "rewound"]
        return (rewinds[-1].attempt, rewinds[-1].step) if rewinds else (0, 0)


def _attempt_number(run: RunInfo) -> int:
    """Of the run's current attempt; 0 where there is none."""
    return 0 if run.attempt is None else run.attempt.number
