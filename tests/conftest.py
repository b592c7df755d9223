"""What holds for every test: GPU tests need a GPU, none begins out of time, a run that passed nothing has failed."""

import os
import signal
import time
from collections import Counter

import pytest

OUTCOMES = pytest.StashKey[Counter[str]]()

# When the last test may begin, in seconds since 1970; unset: whenever it likes. For machines whose time is measured.
TESTS_END = float(os.environ.get("TESTS_END", "inf"))


def pytest_configure(config: pytest.Config) -> None:
    # A script's background jobs ignore SIGINT, and hand that down to processes that tests interrupt.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.stash[OUTCOMES] = Counter()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    on_gpu = [item for item in items if item.get_closest_marker("gpu")]
    if not on_gpu:
        return
    import torch

    if not torch.cuda.is_available():
        for item in on_gpu:
            item.add_marker(pytest.mark.skip(reason="no CUDA device here"))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    if time.time() > TESTS_END:
        pytest.skip("not begun: the time for these tests was over (TESTS_END)")


class Tally:
    """Counts what the tests came to, in the process that reports."""

    def __init__(self, outcomes: Counter[str]) -> None:
        self.outcomes = outcomes

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            self.outcomes[report.outcome] += 1


def pytest_sessionstart(session: pytest.Session) -> None:
    session.config.pluginmanager.register(Tally(session.config.stash[OUTCOMES]))


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    only_looked = session.config.option.collectonly or hasattr(session.config, "workerinput")
    none_ran = not session.config.stash[OUTCOMES]["passed"] and time.time() <= TESTS_END
    if exitstatus == pytest.ExitCode.OK and not only_looked and none_ran:
        session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED
