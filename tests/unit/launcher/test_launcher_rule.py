"""The rule of who ends whom, as a table."""

import pytest

from deploy.launcher.rule import End, Kind, Limits, Verdict, judge

LIMITS = Limits(restarts=10, backoff_s=1.0, steady_s=60.0)


def verdict(name: str, code: int, *, lived_s: float = 0.0, crashes_before: int = 0) -> Verdict:
    return judge(End(name=name, code=code, lived_s=lived_s, crashes_before=crashes_before), LIMITS)


@pytest.mark.parametrize(
    ("name", "code", "kind"),
    [
        ("trainer", 0, Kind.FINISH),
        ("trainer", 1, Kind.FAIL),
        ("trainer", 137, Kind.FAIL),
        *((name, 0, Kind.LEAVE) for name in ("server", "orchestrator", "engine-0")),
        *((name, code, Kind.RESTART) for name in ("server", "orchestrator", "engine-0") for code in (1, 137)),
    ],
)
def test_only_the_trainer_ends_a_job_and_only_crashes_are_mended(name: str, code: int, kind: Kind):
    assert verdict(name, code).kind is kind


def test_waits_double_up_to_a_minute():
    limits = Limits(restarts=10_000, backoff_s=1.0, steady_s=60.0)
    ends = (End(name="server", code=1, lived_s=0.0, crashes_before=before) for before in (0, 1, 2, 5, 6, 7, 9_000))
    assert [judge(end, limits).wait_s for end in ends] == [1, 2, 4, 32, 60, 60, 60]


def test_crashes_in_a_row_are_bounded():
    assert verdict("engine-0", 1, crashes_before=9).kind is Kind.RESTART
    assert verdict("engine-0", 1, crashes_before=10) == Verdict(kind=Kind.GIVE_UP, crashes=11)


def test_a_life_that_was_long_enough_ends_a_row():
    assert verdict("engine-0", 1, lived_s=60.0, crashes_before=10) == Verdict(kind=Kind.RESTART, crashes=1, wait_s=1.0)
    assert verdict("engine-0", 1, lived_s=59.9, crashes_before=10).kind is Kind.GIVE_UP
