"""For tests of whatever talks to engines: a fake one that speaks vLLM's HTTP, without torch and in milliseconds.

    with running_fake_engine(token_s=0.01) as fake:
        engine = VllmEngine("e0", fake.url)
        ...
        fake.engine.fault(Fault(call="finish", action="http_500"))
        fake.restart()                  # same port, first weights
        assert fake.engine.events("torn") == []

It keeps vLLM's order strictly and writes down every breach of it. `FakeEngineProcess` runs one in a process
that can be killed, with a command that restarts it: `python -m orchestrator.testing`.
"""

from orchestrator.testing.fake_engine import FakeEngine
from orchestrator.testing.fake_tokens import expected_tokens
from orchestrator.testing.faults import Fault
from orchestrator.testing.process import FakeEngineProcess
from orchestrator.testing.server import RunningFakeEngine, running_fake_engine

__all__ = [
    "FakeEngine",
    "FakeEngineProcess",
    "Fault",
    "RunningFakeEngine",
    "expected_tokens",
    "running_fake_engine",
]
