"""A rank of the crash laboratory that also hands its weights over where a stamp says so."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

from crashlab.collective import Collective
from crashlab.rank import PATIENCE_S, RUN, Life, Place, Rank

from dataserver.client import DataClient
from dataserver.errors import UnavailableError
from dataserver.weight_sync import Offer, PolicyVersion
from synclab.calls import Calls, Mischief
from synclab.handing import Handing
from synclab.moments import Bomb, Moment

WELL = Mischief()
POLL_S = 0.02
END, LOST = "end of run", "no server"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How long a step computes, what happens to calls, and how long the trainer waits until weights are wanted, once,
    after step `wanted_after`.

    The run is short: on a busy machine it would be over before an orchestrator has said what its evals want.
    """

    step_s: float = 0.04
    wanted_s: float = 60.0
    wanted_after: int = 0
    mischief: Mischief = WELL


class SyncRank(Rank):
    """State of one rank in one life."""

    def __init__(self, place: Place, life: Life, collective: Collective, bomb: Bomb, pace: Pace) -> None:
        super().__init__(place, life, collective, bomb)
        self.pace = pace

    def train(self) -> None:
        """Begin or join the attempt, take all steps and offers."""
        with DataClient(self.place.endpoints, patience_s=PATIENCE_S) as client:
            attempt = self._join(client)
            self._wait_until_wanted(client, attempt.base.step)
            calls = Calls(self.pace.mischief)
            handing = Handing(client, attempt, self.collective, self.trigger, self.place.directory, calls)
            with client.stream(
                RUN,
                attempt,
                world_rank=self.rank,
                dp_rank=self.dp_rank,
                next_step=attempt.base.step + 1,
                credits=1,
                takes_offers=True,
            ) as stream:
                opening = stream.opening_offer()
                if set(self.collective.all_gather(opening)) != {opening}:
                    raise RuntimeError(f"ranks disagree about offer {opening}")
                self._take(handing, opening)
                stream.ack_offer(opening)
                for step in stream:
                    self._optimize(step)
                    time.sleep(self.pace.step_s)
                    if step.sync_weights:
                        version = PolicyVersion(attempt=attempt.number, number=step.number)
                        handing.hand_over(version, step.orchestrator, self.consumed)
                    stream.ack(step)
                    self.trigger.reach(Moment.STEP_DONE, step.number)
                    if step.last or step.number % self.life.save_every == 0:
                        self._save(client, attempt, step)
                    self._wait_until_wanted(client, step.number)
                for offer in self._agreed(stream.offers()):
                    self._take(handing, offer)
                    stream.ack_offer(offer)
            handing.finish()

    def _wait_until_wanted(self, client: DataClient, step: int) -> None:
        if step == self.pace.wanted_after:
            if self.rank == 0:
                self._await_wishes(client)
            self.collective.barrier()

    def _await_wishes(self, client: DataClient) -> None:
        deadline = time.monotonic() + self.pace.wanted_s
        while time.monotonic() < deadline:
            state = client.sync_state(RUN)
            if state.requested or state.last_requested or state.holds:
                return
            time.sleep(POLL_S)

    def _agreed(self, offers: Iterator[Offer]) -> Iterator[Offer]:
        """Offers that all ranks have; they end together, when a rank finds no server too."""
        while True:
            try:
                mine: Offer | str = next(offers, END)
            except UnavailableError as error:
                mine = LOST
                print(f"after the last step: {error}", flush=True)
            told = set(self.collective.all_gather(mine))
            if LOST in told:
                return
            if len(told) != 1:
                raise RuntimeError(f"ranks disagree about offers: {told}")
            if isinstance(mine, str):
                return
            yield mine

    def _take(self, handing: Handing, offer: Offer) -> None:
        if offer.sync_weights:
            handing.hand_over(offer.version, offer.orchestrator, self.consumed)
