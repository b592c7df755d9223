"""One transfer after another: what each call is answered, and what becomes of the engines."""

import asyncio
from collections.abc import Callable

import pytest
from orchlab import ModelEngine, Stage, Wire, checksum_of, request, run_state, sync_id, warped

from dataserver.errors import PreconditionError
from dataserver.weight_buckets import TensorSpec
from dataserver.weight_sync import PolicyVersion, SyncOutcome
from orchestrator.engines.interface import Transport
from orchestrator.labels import sync_of
from orchestrator.members import MemberState
from orchestrator.transfers.values import Ready, RefusalReason, Refused

ORDER = ["abort", "pause", "begin", "load", "receive", "finish", "reset", "resume"]


def befalling(**what: str) -> Callable[[str], str]:
    """Each of these calls once, the first time."""
    left = dict(what)
    return lambda call: left.pop(call, "")


async def landed(stage: Stage, number: int, **fields) -> tuple:
    answer = await stage.coordinator.prepare(request(number, transport=stage.config.transport, **fields))
    assert isinstance(answer, Ready), answer
    stage.engines[0].wire.of(sync_id(number)).set()
    return await stage.coordinator.commit(sync_id(number), checksum_of(sync_id(number)))


async def refused(stage: Stage, number: int, **fields) -> Refused:
    answer = await stage.coordinator.prepare(request(number, **fields))
    assert isinstance(answer, Refused)
    return answer


def test_weights_land_in_the_order_that_no_engine_is_hurt_by() -> None:
    async def main() -> None:
        wire = Wire()
        one, two = ModelEngine("one", wire), ModelEngine("two", wire)
        stage = Stage(one, two)
        await stage.seen()
        answer = await stage.coordinator.prepare(request(3))
        assert isinstance(answer, Ready)
        assert [(engine.name, engine.first_rank) for engine in answer.engines] == [("one", 1), ("two", 2)]
        assert answer.group_size == 3
        wire.of(sync_id(3)).set()
        outcomes = await stage.coordinator.commit(sync_id(3), checksum_of(sync_id(3)))
        assert [outcome.landed for outcome in outcomes] == [True, True]
        assert one.calls == two.calls == ORDER
        assert stage.pool.newest == PolicyVersion(attempt=1, number=3)
        (report,) = stage.reports
        assert (report.outcome, report.engines, report.version.number) == (SyncOutcome.LANDED, ("one", "two"), 3)

    warped(main())


def test_calls_that_come_twice_are_answered_twice_and_done_once() -> None:
    async def main() -> None:
        wire = Wire()
        one = ModelEngine("one", wire)
        stage = Stage(one)
        await stage.seen()
        answers = await asyncio.gather(*(stage.coordinator.prepare(request(1)) for _ in range(3)))
        assert answers[0] == answers[1] == answers[2]
        wire.of(sync_id(1)).set()
        commits = [stage.coordinator.commit(sync_id(1), checksum_of(sync_id(1))) for _ in range(3)]
        outcomes = await asyncio.gather(*commits)
        assert outcomes[0] == outcomes[1] == outcomes[2]
        assert await stage.coordinator.commit(sync_id(1), "late") == outcomes[0]
        await stage.coordinator.abort(sync_id(1), "late")
        assert (await refused(stage, 1)).reason is RefusalReason.STALE
        assert one.calls == ORDER
        assert len(stage.reports) == 1

    warped(main())


def test_a_prepare_that_arrives_after_its_abort_begins_nothing() -> None:
    async def main() -> None:
        one = ModelEngine("one", Wire())
        stage = Stage(one)
        await stage.seen()
        await stage.coordinator.abort(sync_id(5), "the trainer gave up")
        assert (await refused(stage, 5)).reason is RefusalReason.STALE
        with pytest.raises(PreconditionError, match="nothing has landed"):
            await stage.coordinator.commit(sync_id(5), "x")
        assert one.calls == []

    warped(main())


@pytest.mark.parametrize(
    ("fields", "reason", "told"),
    [
        ({"epoch": 2}, RefusalReason.STALE, "epoch 2 is over"),
        ({"attempt_id": "b" * 32}, RefusalReason.STALE, "attempt b"),
        ({"transport": Transport.FILESYSTEM}, RefusalReason.TRANSPORT, "'filesystem' at the trainer and 'gloo'"),
        ({"run": "other"}, RefusalReason.MISMATCH, "'chat', not of 'other'"),
        ({"tensors": (TensorSpec(name="w", dtype="float32", shape=(3, 3)),)}, RefusalReason.MISMATCH, "another shape"),
    ],
)
def test_what_cannot_be_is_refused_and_the_engine_goes_on_as_it_was(fields, reason, told) -> None:
    async def main() -> None:
        wire = Wire()
        one = ModelEngine("one", wire)
        stage = Stage(one)
        await stage.seen()
        answer = await refused(stage, 1, **fields)
        assert answer.reason is reason
        assert told in answer.detail
        await stage.coordinator.idle()
        assert (await landed(stage, 2))[0].landed
        assert (one.restarts, one.breaches) == (0, [])
        # Delivered once more, after the trainer has gone on.
        assert isinstance(await stage.coordinator.prepare(request(1)), Refused)

    warped(main())


def test_a_second_transfer_is_refused_while_one_is_under_way() -> None:
    async def main() -> None:
        wire = Wire()
        stage = Stage(ModelEngine("one", wire))
        await stage.seen()
        await stage.coordinator.prepare(request(1))
        assert (await refused(stage, 2)).reason is RefusalReason.BUSY
        wire.of(sync_id(1)).set()
        await stage.coordinator.commit(sync_id(1), checksum_of(sync_id(1)))
        assert (await refused(stage, 2)).reason is RefusalReason.STALE
        assert (await landed(stage, 3))[0].landed

    warped(main())


def test_pinned_engines_are_left_alone_and_nobody_waits_for_them() -> None:
    async def main() -> None:
        wire = Wire()
        one, two = ModelEngine("one", wire), ModelEngine("two", wire)
        stage = Stage(one, two)
        await stage.seen()
        await landed(stage, 1)
        version = PolicyVersion(attempt=1, number=1)
        async with stage.pool.lend(version, pin=True) as loan:
            outcomes = await landed(stage, 2)
            assert [outcome.engine for outcome in outcomes] == ["two"]
            assert loan.engine is one
            async with stage.pool.lend(PolicyVersion(attempt=1, number=2), pin=True):
                assert (await refused(stage, 3)).reason is RefusalReason.PINNED
        assert [outcome.engine for outcome in await landed(stage, 4)] == ["one", "two"]

    warped(main())


def test_without_an_engine_the_refusal_says_how_each_stands() -> None:
    async def main() -> None:
        one = ModelEngine("one", Wire())
        one.kill()
        stage = Stage(one)
        await stage.seen()
        answer = await refused(stage, 1)
        assert (answer.reason, answer.detail) == (RefusalReason.NO_ENGINE, "one is away (dead)")

    warped(main())


@pytest.mark.parametrize("befalls", ["before", "after", "hang"])
@pytest.mark.parametrize("call", ["abort", "pause", "begin", "load", "receive", "finish", "reset", "resume"])
@pytest.mark.parametrize("transport", [Transport.GLOO, Transport.FILESYSTEM])
def test_an_engine_that_fails_in_any_call_serves_no_mix_and_is_synced_anew(call, befalls, transport) -> None:
    async def main() -> None:
        wire = Wire()
        one, two = ModelEngine("one", wire, befalling(**{call: befalls})), ModelEngine("two", wire)
        stage = Stage(one, two, transport=transport)
        await stage.seen()
        keeping = asyncio.ensure_future(stage.keeper.run())
        answer = await stage.coordinator.prepare(request(1, transport=transport))
        if isinstance(answer, Ready):
            wire.of(sync_id(1)).set()
            outcomes = await stage.coordinator.commit(sync_id(1), checksum_of(sync_id(1)))
            landed_on = {outcome.engine for outcome in outcomes if outcome.landed}
            assert "one" not in landed_on
            # In a group, the other one may have had all before the first failed, or not.
            assert landed_on == {"two"} or (transport is Transport.GLOO and call in {"load", "receive"})
        await stage.coordinator.idle()
        await asyncio.sleep(30)
        assert [member.state for member in stage.pool.members] == [MemberState.READY] * 2
        assert not one.paused
        assert stage.pool.members[0] in stage.pool.stale()
        assert all(outcome.landed for outcome in await landed(stage, 2))
        assert one.breaches == two.breaches == []
        keeping.cancel()

    warped(main())


def test_an_engine_that_dies_while_the_trainer_sends_frees_the_trainer() -> None:
    async def main() -> None:
        wire = Wire()
        one, two = ModelEngine("one", wire, befalling(receive="before")), ModelEngine("two", wire)
        stage = Stage(one, two)
        await stage.seen()
        await stage.coordinator.prepare(request(1))
        wire.of(sync_id(1)).set()
        await asyncio.sleep(1)
        assert [told for told, _ in stage.told] == [sync_id(1)]
        await stage.coordinator.idle()
        outcomes = await stage.coordinator.commit(sync_id(1), checksum_of(sync_id(1)))
        assert not any(outcome.landed for outcome in outcomes)
        assert stage.reports[0].outcome is SyncOutcome.FAILED

    warped(main())


def test_a_prepare_that_no_commit_follows_expires_and_its_engines_are_restarted() -> None:
    async def main() -> None:
        one = ModelEngine("one", Wire())
        stage = Stage(one, transfer_timeout_s=60)
        await stage.seen()
        await stage.coordinator.prepare(request(1))
        await stage.coordinator.idle()
        assert stage.told == [(sync_id(1), "no commit came within 60 s: the prepare expired")]
        await asyncio.sleep(1)
        assert one.restarts == 1
        assert not stage.pool.stale() or stage.pool.newest is None
        outcomes = await stage.coordinator.commit(sync_id(1), checksum_of(sync_id(1)))
        assert "expired" in outcomes[0].detail

    warped(main())


def test_the_version_that_a_later_attempt_offers_at_its_start_gets_work_before_the_ledger_knows() -> None:
    async def main() -> None:
        stage = Stage(ModelEngine("one", Wire()))
        stage.attempt, stage.number = "b" * 32, 2
        stage.pool.note(run_state(attempt=2))
        await stage.seen()
        await landed(stage, 4, attempt_id=stage.attempt)
        async with asyncio.timeout(1), stage.pool.lend() as loan:
            assert loan.version == PolicyVersion(attempt=1, number=4)

    warped(main())


def test_engines_serve_while_files_are_written_and_a_trainer_that_dies_then_strands_none() -> None:
    async def main() -> None:
        one = ModelEngine("one", Wire())
        stage = Stage(one, transport=Transport.FILESYSTEM, transfer_timeout_s=60)
        await stage.seen()
        await landed(stage, 1)
        one.calls.clear()
        answer = await stage.coordinator.prepare(request(2, transport=Transport.FILESYSTEM))
        assert isinstance(answer, Ready)
        assert stage.pool.moving
        async with asyncio.timeout(1), stage.pool.lend() as loan:
            assert loan.version.number == 1
        await stage.coordinator.idle()
        assert one.calls == ["compare"]
        assert stage.told == [(sync_id(2), "no commit came within 60 s: the prepare expired")]
        assert (one.restarts, stage.pool.moving) == (0, False)
        assert stage.pool.stale() == []

    warped(main())


def test_an_engine_that_an_eval_pinned_while_files_were_written_is_left_alone() -> None:
    async def main() -> None:
        wire = Wire()
        one, two = ModelEngine("one", wire), ModelEngine("two", wire)
        stage = Stage(one, two, transport=Transport.FILESYSTEM)
        await stage.seen()
        await landed(stage, 1)
        await stage.coordinator.prepare(request(2, transport=Transport.FILESYSTEM))
        await asyncio.sleep(1)
        async with stage.pool.lend(PolicyVersion(attempt=1, number=1), pin=True) as loan:
            wire.of(sync_id(2)).set()
            outcomes = await stage.coordinator.commit(sync_id(2), checksum_of(sync_id(2)))
            told = {outcome.engine: outcome.detail for outcome in outcomes}
            assert told.pop(loan.engine.name) == "an eval pinned it meanwhile"
            assert list(told.values()) == [""]
            assert (sync_of(one.label), sync_of(two.label)).count(sync_id(2)) == 1
        assert one.breaches == two.breaches == []

    warped(main())


@pytest.mark.parametrize("transport", [Transport.GLOO, Transport.FILESYSTEM])
def test_an_engine_that_somebody_else_paused_is_not_resumed_by_a_transfer(transport) -> None:
    async def main() -> None:
        wire = Wire()
        one, two = ModelEngine("one", wire), ModelEngine("two", wire)
        stage = Stage(one, two, transport=transport)
        await stage.seen()
        one.paused = True
        outcomes = await landed(stage, 1)
        assert [outcome.engine for outcome in outcomes if outcome.landed] == ["two"]
        assert (one.paused, "resume" in one.calls) == (True, False)
        await stage.seen()
        await asyncio.sleep(1)
        assert (one.restarts, two.restarts) == (1, 0)

    warped(main())


def test_a_commit_of_a_displaced_attempt_lands_nothing() -> None:
    async def main() -> None:
        wire = Wire()
        one = ModelEngine("one", wire)
        stage = Stage(one)
        await stage.seen()
        await stage.coordinator.prepare(request(1))
        wire.of(sync_id(1)).set()
        stage.attempt = "b" * 32
        (outcome,) = await stage.coordinator.commit(sync_id(1), checksum_of(sync_id(1)))
        assert "another attempt" in outcome.detail
        assert "finish" not in one.calls
        await asyncio.sleep(1)
        assert one.restarts == 1

    warped(main())


@pytest.mark.parametrize("call", ["pause", "begin", "load", "receive", "finish", "reset", "resume"])
@pytest.mark.parametrize("transport", [Transport.GLOO, Transport.FILESYSTEM])
def test_a_fault_that_nobody_foresaw_has_the_engine_restarted_and_frees_the_trainer(call, transport) -> None:
    async def main() -> None:
        wire = Wire()
        broken = {call}

        def dice(called: str) -> str:
            if called in broken:
                broken.remove(called)
                raise ZeroDivisionError(called)
            return ""

        one = ModelEngine("one", wire, dice)
        stage = Stage(one, transport=transport)
        await stage.seen()
        keeping = asyncio.ensure_future(stage.keeper.run())
        answer = await stage.coordinator.prepare(request(1, transport=transport))
        if isinstance(answer, Ready):
            wire.of(sync_id(1)).set()
            (outcome,) = await stage.coordinator.commit(sync_id(1), checksum_of(sync_id(1)))
            assert "ZeroDivisionError" in outcome.detail
        await stage.coordinator.idle()
        in_group = transport is Transport.GLOO
        assert [told for told, _ in stage.told] == ([sync_id(1)] if call == "load" and in_group else [])
        await asyncio.sleep(30)
        assert one.restarts == 1
        assert (await landed(stage, 2))[0].landed
        assert one.breaches == []
        keeping.cancel()

    warped(main())


def test_weights_of_another_checksum_are_never_served() -> None:
    async def main() -> None:
        wire = Wire()
        one = ModelEngine("one", wire)
        stage = Stage(one)
        await stage.seen()
        await stage.coordinator.prepare(request(1))
        wire.of(sync_id(1)).set()
        (outcome,) = await stage.coordinator.commit(sync_id(1), "0" * 32)
        assert "checksum" in outcome.detail
        assert "finish" not in one.calls
        await asyncio.sleep(1)
        assert one.restarts == 1

    warped(main())


def test_no_engine_is_called_once_the_lease_ended_and_the_next_epoch_restarts_what_it_finds() -> None:
    async def main() -> None:
        wire = Wire()
        one = ModelEngine("one", wire)
        stage = Stage(one)
        await stage.seen()
        await stage.coordinator.prepare(request(1))
        await asyncio.sleep(1)
        await stage.coordinator.close()
        calls = list(one.calls)
        await asyncio.sleep(100)
        assert one.calls == calls
        assert (await refused(stage, 2)).reason is RefusalReason.STALE
        stage.pool.forget()
        stage.coordinator = stage.lead(epoch=2)
        await stage.seen()
        await asyncio.sleep(1)
        assert one.restarts == 1
        assert (await landed(stage, 3, epoch=2))[0].landed
        assert one.breaches == []

    warped(main())


def test_answers_under_way_are_waited_for_where_the_configuration_says_so() -> None:
    async def main() -> None:
        wire = Wire()
        one = ModelEngine("one", wire)
        stage = Stage(one, wait_for_answers=True)
        await stage.seen()
        await landed(stage, 1)
        asked = one.calls.count("pause")
        async with stage.pool.lend():
            preparing = asyncio.ensure_future(stage.coordinator.prepare(request(2)))
            await asyncio.sleep(5)
            assert one.calls.count("pause") == asked
        assert isinstance(await preparing, Ready)
        await stage.coordinator.abort(sync_id(2), "enough")
        await asyncio.sleep(1)
        await stage.seen()
        await landed(stage, 3)
        async with stage.pool.lend():
            assert (await refused(stage, 4)).reason is RefusalReason.EXPIRED
        assert one.breaches == []

    warped(main())
