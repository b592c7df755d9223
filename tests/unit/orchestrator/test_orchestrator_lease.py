"""The lease: one orchestrator at a time, and none that works on after its end."""

import asyncio

import pytest
from ledgerlab import FakeLedger, NearServer
from orchlab import warped

from dataserver.errors import UnauthenticatedError
from orchestrator.lease import Lease

TTL_S = 15.0


def lease_of(server: NearServer, holder: str) -> Lease:
    clock = asyncio.get_running_loop().time
    return Lease(server, run="chat", holder=holder, address=f"{holder}:1", ttl_s=TTL_S, clock=clock)


def test_a_second_orchestrator_waits_until_the_first_gives_back() -> None:
    async def main() -> None:
        server = NearServer(FakeLedger())
        first, second = lease_of(server, "first"), lease_of(server, "second")
        assert await first.take() == 1
        keeping = asyncio.ensure_future(first.keep())
        taking = asyncio.ensure_future(second.take())
        await asyncio.sleep(100)
        assert not taking.done()
        assert not keeping.done()
        keeping.cancel()
        await first.release()
        assert await taking == 2

    warped(main())


def test_a_crashed_orchestrators_lease_is_waited_out() -> None:
    async def main() -> None:
        server = NearServer(FakeLedger())
        await lease_of(server, "first").take()
        begin = asyncio.get_running_loop().time()
        assert await lease_of(server, "second").take() == 2
        assert TTL_S <= asyncio.get_running_loop().time() - begin <= TTL_S + 2

    warped(main())


@pytest.mark.parametrize("fault", ["away", "lost"])
def test_a_lease_that_cannot_be_renewed_ends_before_another_can_have_it(fault: str) -> None:
    async def main() -> None:
        ledger = FakeLedger()
        server = NearServer(ledger)
        first = lease_of(server, "first")
        await first.take()
        keeping = asyncio.ensure_future(first.keep())
        await asyncio.sleep(60)
        setattr(ledger, fault, True)
        # What the first one heard last; a lost answer may have renewed more than it knows.
        heard = ledger.lease.expire_time if ledger.lease else 0.0
        assert "not renewed within 15 s" in await keeping
        assert asyncio.get_running_loop().time() <= heard

    warped(main())


def test_a_process_that_stood_still_knows_at_once_that_its_lease_is_over() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        ledger = FakeLedger()
        first = lease_of(NearServer(ledger), "first")
        assert not first.alive
        await first.take()
        assert first.alive
        # No turn of the loop: what was about to be called asks next.
        loop.now += TTL_S * 0.96  # type: ignore[attr-defined]
        assert not first.alive
        assert ledger.lease is not None
        assert loop.time() < ledger.lease.expire_time
        await first.take()
        assert first.alive
        await first.release()
        assert not first.alive

    warped(main())


def test_an_outage_shorter_than_the_lease_is_a_pause() -> None:
    async def main() -> None:
        ledger = FakeLedger()
        first = lease_of(NearServer(ledger), "first")
        await first.take()
        keeping = asyncio.ensure_future(first.keep())
        for _ in range(20):
            ledger.away = not ledger.away
            await asyncio.sleep(8)
        assert not keeping.done()
        keeping.cancel()

    warped(main())


def test_a_refusal_that_no_waiting_mends_ends_the_taking() -> None:
    class Closed(NearServer):
        async def call(self, method, *arguments, **named):
            raise UnauthenticatedError("the token is not this server's")

    async def main() -> None:
        with pytest.raises(UnauthenticatedError):
            await lease_of(Closed(FakeLedger()), "first").take()

    warped(main())
