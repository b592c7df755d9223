"""What a data server does between a rank and the ledger: open, plan, seal when pacing allows, send."""

from dataserver.cursor import Cursor
from dataserver.errors import OutdatedPlanError
from dataserver.ledger import Attempt, AttemptKey, ProposedSeal
from dataserver.planning.fingerprint import PLANNER_VERSION
from dataserver.planning.plan import EndOfRun
from ledgermodel.box import LedgerBox
from ledgermodel.planning import plan, samples_of, stages_fingerprint
from ledgermodel.scenarios import Scenario
from ledgermodel.world import Receipt

RUN = "run"


class Servers:
    """All replicas: they hold nothing but what they can compute again."""

    def __init__(self, scenario: Scenario, ledger: LedgerBox) -> None:
        self._scenario = scenario
        self._ledger = ledger

    def open(self, stream_id: str, attempt: AttemptKey, rank: int, dp_rank: int, next_step: int) -> None:
        self._ledger.open_stream(
            RUN, attempt=attempt, world_rank=rank, dp_rank=dp_rank, next_step=next_step, stream_id=stream_id
        )

    def close(self, stream_id: str) -> None:
        self._ledger.close_stream(stream_id)

    def renew(self, stream_ids: tuple[str, ...]) -> None:
        """Renew the leases of the streams that the servers hold."""
        self._ledger.renew_leases(stream_ids)

    def paced(self, step: int) -> bool:
        """Whether pacing lets the step go: all before it are consumed."""
        return not self._scenario.acks or step <= self._ledger.get_run(RUN).consumed_step + 1

    def first_step(self) -> int:
        """Where the ledger has the run's later stage begin; 0 without one."""
        stages = self._ledger.get_run(RUN).stages
        return stages[-1].stage.first_step if len(stages) > 1 else 0

    def serve(self, server: int, attempt: Attempt, dp_rank: int, step: int, known: int = 0) -> Receipt | None:
        """Seal the step, or read its seal, and give a rank its share; None where it cannot be planned.

        `known`: where the server has the later stage begin. Raises `OutdatedPlanError` when it has to learn of it.
        """
        uid = self._ledger.get_run(RUN).uid
        begin = self._begin(uid, attempt, step)
        if begin is None:
            return None
        if begin.stage and not known:
            raise OutdatedPlanError("the step begins in a stage that this server does not know")
        proposed, samples = self._propose(server, attempt, begin, dp_rank, known)
        seal = self._ledger.seal(uid, attempt.key, proposed)
        return self.receipt(proposed, flag=seal.sync_weights, samples=samples)

    @staticmethod
    def receipt(proposed: ProposedSeal, *, flag: bool, samples: tuple[int, ...]) -> Receipt:
        return Receipt(
            step=proposed.step,
            digest=proposed.plan_digest,
            flag=flag,
            end=proposed.end,
            samples=samples,
            last=proposed.last,
            ended=proposed.end_of_run,
        )

    def _begin(self, uid: str, attempt: Attempt, step: int) -> Cursor | None:
        """Where the step begins: at the base, where the seal before ended, or (a hasty server) where it would end."""
        if step == attempt.base.step + 1:
            return attempt.base
        before = self._ledger.get_seal(uid, step - 1)
        if before is not None:
            return None if before.end_of_run else before.end
        if not self._scenario.hasty:
            return None
        earlier = self._begin(uid, attempt, step - 1)
        planned = earlier and plan(earlier, attempt.batch, attempt.dp_world_size)
        return planned.end if planned and not isinstance(planned, EndOfRun) else None

    def _propose(
        self, server: int, attempt: Attempt, begin: Cursor, dp_rank: int, known: int = 0
    ) -> tuple[ProposedSeal, tuple[int, ...]]:
        batch = attempt.batch
        if server in self._scenario.short_servers and batch.max_steps is not None:
            batch = batch.model_copy(update={"max_steps": batch.max_steps - 1})
        planned = plan(begin, batch, attempt.dp_world_size, known)
        if isinstance(planned, EndOfRun):
            end = ProposedSeal(
                step=begin.step + 1,
                end=begin,
                plan_digest="",
                planner_version=PLANNER_VERSION,
                last=False,
                end_of_run=True,
                stages=stages_fingerprint(known),
            )
            return end, ()
        mark = "x" if server in self._scenario.other_planners else ""
        step = ProposedSeal(
            step=planned.step,
            end=planned.end,
            plan_digest=planned.digest[:6] + mark,
            planner_version=PLANNER_VERSION,
            last=planned.last and self._scenario.marks_last,
            end_of_run=False,
            stages=stages_fingerprint(known),
        )
        return step, samples_of(planned, dp_rank)
