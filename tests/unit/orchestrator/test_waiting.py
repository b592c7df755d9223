"""Who waits says so when it begins to, when the reason changes and now and then, and not each time it looks."""

import logging

import pytest

from orchestrator.waiting import REMIND_S, Waiting

log = logging.getLogger(__name__)


def test_a_wait_is_told_once_for_each_reason_and_again_while_it_stands(caplog: pytest.LogCaptureFixture) -> None:
    now = 100.0
    waiting = Waiting("the run", log, lambda: now)
    for why in ("no such run", "no such run", "no answer", "no answer"):
        waiting.say(why)
        now += 1
    assert [record.getMessage().partition("since")[0] for record in caplog.records] == ["waits for the run "] * 2
    assert [record.getMessage().rpartition(", ")[2] for record in caplog.records] == [
        "0 s: no such run",
        "2 s: no answer",
    ]
    now = 102 + REMIND_S
    waiting.say("no answer")
    assert caplog.records[-1].getMessage().endswith(f"{2 + REMIND_S:.0f} s: no answer")
    waiting.over()
    waiting.say("no answer")
    assert caplog.records[-1].getMessage().endswith("0 s: no answer")
