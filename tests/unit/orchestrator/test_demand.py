"""What evals want reaches the data server once, and holds live exactly as long as they are wanted."""

import asyncio

from ledgerlab import FakeLedger, NearServer
from orchlab import warped

from orchestrator.demand import Demand
from orchestrator.wants import Wants

TTL_S = 15.0


def test_each_version_is_asked_for_once_and_the_last_too() -> None:
    async def main() -> None:
        ledger = FakeLedger()
        demand = Demand(NearServer(ledger), run="chat", hold_id="h", ttl_s=TTL_S)
        running = asyncio.ensure_future(demand.run())
        for _ in range(3):
            demand.want(Wants(versions=frozenset({5, 10}), last=True), ledger.sync_state("chat"))
            await asyncio.sleep(5)
        assert ledger.calls == ["request None", "request 5", "request 10"]
        running.cancel()

    warped(main())


def test_a_hold_lives_until_it_is_no_longer_wanted() -> None:
    async def main() -> None:
        ledger = FakeLedger()
        demand = Demand(NearServer(ledger), run="chat", hold_id="h", ttl_s=TTL_S)
        running = asyncio.ensure_future(demand.run())
        demand.want(Wants(hold=True), ledger.sync_state("chat"))
        for _ in range(50):
            await asyncio.sleep(2)
            assert ledger.holds["h"] > ledger.now
        assert ledger.calls.count("hold") <= 22
        demand.want(Wants(), ledger.sync_state("chat"))
        await asyncio.sleep(1)
        assert ledger.holds == {}
        await asyncio.sleep(100)
        assert ledger.calls[-1] == "release"
        running.cancel()

    warped(main())


def test_a_data_server_that_was_away_is_told_when_it_is_back() -> None:
    async def main() -> None:
        ledger = FakeLedger(away=True)
        demand = Demand(NearServer(ledger), run="chat", hold_id="h", ttl_s=TTL_S)
        running = asyncio.ensure_future(demand.run())
        demand.want(Wants(versions=frozenset({3}), hold=True), ledger.sync_state("chat"))
        await asyncio.sleep(60)
        assert ledger.calls == []
        ledger.away = False
        await asyncio.sleep(3)
        assert ledger.calls == ["request 3", "hold"]
        ledger.away = True
        await demand.release()
        running.cancel()

    warped(main())


def test_the_end_of_an_orchestrator_ends_its_hold() -> None:
    async def main() -> None:
        ledger = FakeLedger()
        demand = Demand(NearServer(ledger), run="chat", hold_id="h", ttl_s=TTL_S)
        running = asyncio.ensure_future(demand.run())
        demand.want(Wants(hold=True), ledger.sync_state("chat"))
        await asyncio.sleep(1)
        await demand.release()
        assert ledger.holds == {}
        running.cancel()

    warped(main())


def test_what_is_wanted_during_the_release_takes_no_hold_again() -> None:
    async def main() -> None:
        ledger = FakeLedger()
        demand = Demand(NearServer(ledger), run="chat", hold_id="h", ttl_s=TTL_S)
        running = asyncio.ensure_future(demand.run())
        demand.want(Wants(hold=True), ledger.sync_state("chat"))
        await asyncio.sleep(0)  # the hold is being taken, and the answer under way
        releasing = asyncio.ensure_future(demand.release())
        await asyncio.sleep(0)
        demand.want(Wants(hold=True), ledger.sync_state("chat"))
        await releasing
        await asyncio.sleep(1)
        assert ledger.calls == ["hold", "release"]
        assert ledger.holds == {}
        running.cancel()

    warped(main())
