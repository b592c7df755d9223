"""The real ledger, and what the ranks of a run do around it."""

from collections import Counter
from dataclasses import replace
from typing import Self

from ledgermodel.box import LedgerBox
from ledgermodel.planning import FINGERPRINT, run_spec
from ledgermodel.play import Event, ViolationError

from dataserver.cursor import Cursor
from dataserver.errors import AttemptMismatchError, DataServerError
from dataserver.ledger import ProposedSeal, Seal
from dataserver.ledger.rules import offers as offer_rules
from dataserver.weight_sync import Offer, PolicyVersion, SyncOutcome, SyncState, WeightSync
from syncmodel.scenarios import Scenario
from syncmodel.world import Chance, Rank, Report, World, chance_of

RUN = "run"
RANKS = 2
HOLD_S = 100.0
LONG_S = 3600.0


class SyncPlay:
    """One ledger for all worlds of a scenario. Offers follow each other at once: their pause is no rule of safety."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.ledger = LedgerBox()
        self._pause, offer_rules.OFFER_PAUSE_S = offer_rules.OFFER_PAUSE_S, 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        offer_rules.OFFER_PAUSE_S = self._pause
        self.ledger.close()

    def start(self) -> World:
        self.ledger.create_run(RUN, run_spec(self.scenario.steps, 1), FINGERPRINT, epoch_samples=8)
        if self.scenario.led:
            self.ledger.lease_orchestrator(RUN, "one", "host:1", LONG_S)
        return World(ledger=self.ledger.state, left=tuple(sorted(self.scenario.mishaps.items())))

    def happen(self, world: World, event: Event) -> World | None:
        """The world after the event; None where it is refused or changes nothing. Raises `ViolationError`."""
        self.ledger.state, self.ledger.now = world.ledger, world.now
        try:
            after = event.act(world)
        except DataServerError:
            return None
        return None if after is None else replace(after, ledger=self.ledger.state)

    def ledger_state(self, world: World) -> SyncState:
        """How the ledger of a world stands."""
        self.ledger.state, self.ledger.now = world.ledger, world.now
        return self.ledger.sync_state(RUN)

    @property
    def uid(self) -> str:
        return self.ledger.get_run(RUN).uid

    def begin(self, world: World) -> World:
        """A job begins from its newest checkpoint, or with fresh weights."""
        cursor = Cursor(order_fingerprint=FINGERPRINT, step=world.saved, position=world.saved)
        attempt = self.ledger.begin_attempt(
            RUN,
            resume=world.saved > 0,
            cursor=cursor if world.saved else None,
            version=None,
            world_size=RANKS,
            dp_world_size=RANKS,
            batch=None,
            holder="launcher",
            take_over=True,
        )
        ranks = (Rank(step=world.saved),) * RANKS
        return replace(
            world,
            attempt=attempt.key,
            base=world.saved,
            ranks=ranks,
            stamped=frozenset(),
            syncs_before=world.syncs,
        )

    def open(self, world: World, number: int, *, plain: bool = False) -> World:
        """A rank opens its stream; the first time it gets the opening offer with it. One that is refused fails the job.

        `plain` makes it a confused one.
        """
        rank = world.ranks[number]
        try:
            self.ledger.open_stream(
                RUN,
                attempt=world.attempt,
                world_rank=number,
                dp_rank=number,
                next_step=rank.step + 1,
                stream_id=f"rank {number}",
                takes_offers=not plain,
                acked_offer=rank.acked_offer,
            )
        except AttemptMismatchError:
            return self.fail(world)
        world = world.with_rank(number, streams=True, plain=plain, opened=True)
        if plain or rank.opened:
            return world
        offer = self.ledger.get_offer(self.uid, world.attempt, 0)
        return world.with_rank(number, chance=chance_of(offer))

    @staticmethod
    def fail(world: World) -> World:
        """The job ends; its launcher will begin again."""
        return replace(world, attempt=None, ranks=(), base=0)

    def receive(self, world: World, number: int) -> World | None:
        """A server gives a rank what follows."""
        rank = world.ranks[number]
        step = rank.step + 1
        if step <= self.scenario.steps:
            if min(each.step for each in world.ranks) < rank.step:
                return None  # pacing
            return world.with_rank(number, chance=self._sealed(world, step))
        end = _proposed(step, end_of_run=True)
        if rank.plain:
            self.ledger.seal(self.uid, world.attempt, end)
            return world.with_rank(number, ended=True)
        known = self.ledger.get_offer(self.uid, world.attempt, rank.offer + 1)
        answer = self.ledger.conclude(self.uid, world.attempt, end, after=rank.offer, hold_s=HOLD_S)
        if isinstance(answer, Offer):
            if known is None:
                self._refuse_hasty_offer(world, answer)
            return world.with_rank(number, chance=chance_of(answer))
        if isinstance(answer, Seal):
            return self._ended(world.with_rank(number, ended=True))
        return world

    def meet(self, world: World, outcome: SyncOutcome | None, *, contradict: bool = False) -> World:
        """All ranks hold their next chance: they meet in its collective, and the transfer ends as `outcome`."""
        chances = [rank.chance for rank in world.ranks]
        if len(set(chances)) > 1:
            raise ViolationError(f"ranks meet in one collective with {' and '.join(map(str, chances))}")
        chance = chances[0]
        if outcome is not None:
            world = self._hand_over(world, chance, outcome, contradict=contradict)
        for number in range(RANKS):
            done = {"step": chance.number} if chance.kind == "step" else {"offer": chance.number}
            world = world.with_rank(number, chance=None, **done)
        if chance.kind == "step":
            self.ledger.record_acks(self.uid, world.attempt, dict.fromkeys(range(RANKS), chance.number))
        return world

    def acknowledge_offer(self, world: World, number: int) -> World:
        offer = world.ranks[number].offer
        self.ledger.ack_offers(self.uid, world.attempt, {number: offer})
        return world.with_rank(number, acked_offer=offer)

    def arrive(self, world: World, report: Report) -> World:
        """A report reaches the ledger, or is refused there."""
        world = replace(world, reports=world.reports - {report})
        sync = WeightSync(
            sync_id=f"{report.sync:032x}",
            version=PolicyVersion(attempt=report.attempt, number=report.version),
            outcome=report.outcome,
        )
        try:
            self.ledger.report_sync(RUN, sync)
        except DataServerError:
            return world
        return replace(world, heard=world.heard | {(report.sync, report.outcome)})

    def _sealed(self, world: World, step: int) -> Chance:
        fresh = self.ledger.get_seal(self.uid, step) is None
        seal = self.ledger.seal(self.uid, world.attempt, _proposed(step, last=step == self.scenario.steps))
        if fresh and step in world.accepted and not seal.sync_weights:
            raise ViolationError(f"version {step} was promised before its step was sealed, and its stamp is not set")
        epoch = 0 if seal.orchestrator is None else seal.orchestrator.epoch
        return Chance("step", step, step, seal.sync_weights, epoch)

    def _hand_over(self, world: World, chance: Chance, outcome: SyncOutcome, *, contradict: bool) -> World:
        made = (
            world.attempt.number
            if chance.version > world.base
            else self.ledger.get_offer(self.uid, world.attempt, 0).version.attempt
        )
        sync = world.syncs + 1
        said = {outcome, SyncOutcome.FAILED} if contradict else {outcome}
        reports = {Report(sync, made, chance.version, each) for each in said}
        engines = {(made, chance.version, sync)} if outcome is SyncOutcome.LANDED else set()
        return replace(
            world,
            syncs=sync,
            reports=world.reports | reports,
            engines=world.engines | engines,
            stamped=world.stamped | {chance.version},
        )

    def _refuse_hasty_offer(self, world: World, offer: Offer) -> None:
        """No offer is made while ranks are in the one before, nor of what engines serve already."""
        if any(rank.acked_offer < offer.number - 1 for rank in world.ranks):
            raise ViolationError(f"offer {offer.number} is made while a rank is not done with the one before")
        # A late report of a sync of an earlier attempt is taken for one of this offer's: one offer too many.
        late = any(each <= world.syncs_before for each, _ in world.heard)
        for made, number, sync in world.engines:
            heard = {outcome for each, outcome in world.heard if each == sync}
            hasty = not heard and sync > world.syncs_before and not late
            if (made, number) == (offer.version.attempt, offer.version.number) and (
                hasty or SyncOutcome.LANDED in heard
            ):
                raise ViolationError(f"version {offer.version} is offered again, though engines serve it")

    def _ended(self, world: World) -> World:
        """A rank heard that the run is over: nobody may wait in a collective, and no promise be open."""
        state = self.ledger.sync_state(RUN)
        version = (world.attempt.number if state.sealed_step > world.base else 0, state.sealed_step)
        landed = any(
            number == version[1] and (not version[0] or made == version[0]) for made, number, _ in world.engines
        )
        late = state.shutdown_deadline is not None and world.now >= state.shutdown_deadline
        if world.last_accepted and not landed and not late:
            raise ViolationError("the run ends early: its last version was asked for, and engines lack it")
        kept = Counter(world.stamped)
        if missed := sorted(number for number in world.accepted if not kept[number] and number >= world.base):
            raise ViolationError(f"version {missed[0]} was promised, and the run ends without having offered it")
        return replace(world, finished=all(rank.ended for rank in world.ranks))


def _proposed(step: int, *, last: bool = False, end_of_run: bool = False) -> ProposedSeal:
    at = step - 1 if end_of_run else step
    return ProposedSeal(
        step=step,
        end=Cursor(order_fingerprint=FINGERPRINT, step=at, position=at),
        plan_digest="",
        planner_version=1,
        last=last,
        end_of_run=end_of_run,
        stages=FINGERPRINT,
    )
