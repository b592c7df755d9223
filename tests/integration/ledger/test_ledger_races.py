"""Several processes on one ledger: one of them wins, and the others read what it wrote."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection

from dataserver.ledger import runs
from dataserver.ledger.sql import SqlLedger
from dataserver.run_spec import BatchSpec, OrderSpec, RunSpec, Source

RACER = Path(__file__).with_name("racer.py")
ROUNDS = 10
SPEC = RunSpec(
    order=OrderSpec(sources=(Source(store="chat"),), max_length=8),
    batch=BatchSpec(step_samples=2, micro_batch_tokens=16),
)


class Racers:
    """Processes that act at the same moment."""

    def __init__(self, count: int) -> None:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
        self._racers = [subprocess.Popen([sys.executable, RACER], **pipes) for _ in range(count)]

    def race(self, *lines: str) -> list[Any]:
        """Give each racer one line; their answers."""
        for racer, line in zip(self._racers, lines, strict=True):
            racer.stdin.write(line + "\n")
        return [json.loads(racer.stdout.readline()) for racer in self._racers]

    def all(self, line: str) -> list[Any]:
        """Give all racers the same line; their answers."""
        return self.race(*[line] * len(self._racers))

    def close(self) -> None:
        for racer in self._racers:
            racer.stdin.close()
            assert racer.wait(timeout=100) == 0
            racer.stdout.close()


@pytest.fixture(scope="module")
def processes() -> Iterator[Racers]:
    racers = Racers(3)
    yield racers
    racers.close()


@pytest.fixture
def racers(processes: Racers, url: str) -> Racers:
    """Three processes with a fresh ledger, which they opened at once."""
    assert processes.all(f"open {url}") == ["open"] * 3
    return processes


@pytest.fixture
def uid(racers: Racers) -> str:
    """The uid of a run whose attempt 1 is begun."""
    uid = racers.all("create run")[0]["uid"]
    racers.all("begin a False")
    return uid


def test_processes_open_one_fresh_ledger_and_create_one_run(racers):
    for number in range(ROUNDS):
        answers = racers.all(f"create run-{number}")
        assert sorted(answer["created"] for answer in answers) == [False, False, True]
        assert len({answer["uid"] for answer in answers}) == 1


def test_one_process_begins_and_the_others_are_told_by_whom(racers):
    racers.all("create run")
    answers = racers.race("begin a False", "begin b False", "begin c False")
    (winner,) = [answer for answer in answers if "number" in answer]
    assert winner["number"] == 1
    losers = [answer for answer in answers if "error" in answer]
    assert [loser["error"] for loser in losers] == ["AttemptAliveError"] * 2
    assert all(f"'{winner['holder']}' holds it" in loser["message"] for loser in losers)


def test_takeovers_at_once_get_different_numbers_and_all_but_one_are_fenced(racers):
    racers.all("create run")
    answers = racers.race("begin a True", "begin b True", "begin c True")
    assert sorted(answer["number"] for answer in answers) == [1, 2, 3]
    again = racers.race("begin a True", "begin b True", "begin c True")
    assert sorted(answer.get("error", "begun") for answer in again) == ["HolderFencedError"] * 2 + ["begun"]


def test_one_process_seals_and_the_others_read_the_same_flag(racers, uid):
    for step in range(1, ROUNDS + 1):
        first, second, _ = racers.race(
            f"seal {uid} 1 {step} d{step}", f"seal {uid} 1 {step} d{step}", f"request {step}"
        )
        assert first == second
        assert first["digest"] == f"d{step}"


def test_of_two_plans_for_one_step_one_is_sealed_and_the_other_refused(racers, uid):
    for step in range(1, ROUNDS + 1):
        answers = racers.race(*(f"seal {uid} 1 {step} {digest}" for digest in "xyz"))
        (winner,) = {answer["digest"] for answer in answers if "digest" in answer}
        losers = [answer for answer in answers if "error" in answer]
        assert [loser["error"] for loser in losers] == ["PlanMismatchError"] * 2
        assert all(f"sealed as digest {winner}" in loser["message"] for loser in losers)


def test_acks_of_ranks_at_different_servers_all_count(racers, uid):
    for step in range(1, ROUNDS + 1):
        racers.all(f"seal {uid} 1 {step} d")
        racers.race(f"ack {uid} 1 0 {step}", f"ack {uid} 1 1 {step}", f"ack {uid} 1 1 {step - 1}")
        assert racers.all(f"ack {uid} 1 0 0")[0] == [step, step]


def test_threads_share_one_ledger(story):
    story.begin()
    start = threading.Barrier(8)

    def work(rank: int) -> list[bool]:
        start.wait(timeout=60)
        flags = []
        for step in range(1, ROUNDS + 1):
            story.ledger.request_sync("run", step + rank)
            flags.append(story.seal(1, step).sync_weights)
        return flags

    with ThreadPoolExecutor(8) as pool:
        flags = list(pool.map(work, range(8)))
    assert all(seen == flags[0] for seen in flags)
    assert story.run.sealed_step == ROUNDS


def test_transactions_that_wait_for_each_other_are_run_again(postgres_database, empty_postgres):
    """Two transactions take two rows crosswise: PostgreSQL ends one, which then runs again."""
    ledger = SqlLedger(postgres_database, 30)
    names = ("a", "b")
    for name in names:
        ledger.create_run(name, SPEC, "order", epoch_samples=10)
    both_hold_one = threading.Barrier(2)
    tries = []

    def cross(first: str, second: str) -> None:
        def work(connection: Connection) -> None:
            tries.append(first)
            runs.lock_by_name(connection, first)
            if len(tries) <= 2:
                both_hold_one.wait(timeout=60)
            runs.lock_by_name(connection, second)

        postgres_database.write(work)

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(cross, *names), pool.submit(cross, *reversed(names))]:
            done.result(timeout=100)
    assert len(tries) > 2
