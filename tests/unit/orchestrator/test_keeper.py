"""An engine that has to be started anew comes back, whatever its restart meets."""

import asyncio

import pytest
from orchlab import ModelEngine, Stage, Wire, warped

from orchestrator.errors import EngineUnavailableError
from orchestrator.members import MemberState


class UnluckyEngine(ModelEngine):
    """Its first restart raises `fault`."""

    def __init__(self, fault: Exception) -> None:
        super().__init__("e0", Wire())
        self.fault: Exception | None = fault

    async def restart(self) -> None:
        fault, self.fault = self.fault, None
        if fault is not None:
            raise fault
        await super().restart()


@pytest.mark.parametrize(
    "fault", [EngineUnavailableError("e0", "restart", "no such command"), ProcessLookupError()], ids=["engine", "ours"]
)
def test_a_restart_that_fails_is_tried_again_whatever_it_failed_by(fault: Exception) -> None:
    async def main() -> None:
        engine = UnluckyEngine(fault)
        engine.label = "1.1/" + "0" * 32
        stage = Stage(engine)
        [member] = stage.pool.members
        keeping = asyncio.ensure_future(stage.keeper.run())
        stage.keeper.restart(member, "it may hold a mix")
        await asyncio.sleep(60)
        assert member.state is MemberState.READY
        assert engine.restarts == 1
        keeping.cancel()
        await asyncio.wait([keeping])

    warped(main())
