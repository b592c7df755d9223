"""Ten thousand damaged requests: none ends the server, hangs, or leaves anything behind."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from google.protobuf.message import Message
from hostilelab.methods import Method, all_methods, credit, eval_open, valid_requests
from hostilelab.mutate import Mutator
from hostilelab.stage import Stage, set_stage
from hostilelab.victim import POOL_THREADS, VictimServer
from hostilelab.wire import STREAM, Status, Wire

from dataserver.v1 import run_pb2

MUTATIONS = 10_000
MUTATIONS_OF_THE_SHORT_TEST = 1_000
THREADS = 2

# Stages wear out: mutations rewind, delete and displace.
FRESH_STAGE_EVERY = 200

# Ends of a call that mean that the server did not cope.
FAILURES = frozenset({"INTERNAL", "UNKNOWN", "UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED", "DATA_LOSS"})


def test_each_method_has_a_valid_request_to_mutate(wire: Wire):
    requests = valid_requests("run", run_pb2.Attempt(number=1, attempt_id="of a test"), "fingerprint")
    assert set(requests) == {method.request for method in all_methods()}


def test_a_thousand_mutations_of_valid_requests_do_no_harm(server: VictimServer):
    attack_and_examine(server, MUTATIONS_OF_THE_SHORT_TEST, first_seed=100)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_ten_thousand_mutations_of_valid_requests_do_no_harm(server: VictimServer):
    attack_and_examine(server, MUTATIONS, first_seed=0)


def attack_and_examine(server: VictimServer, mutations: int, first_seed: int) -> None:
    """Have so many mutations sent; every call must end with a clear status, and nothing may stay behind."""
    before = server.settled(server.vitals())
    seeds = range(first_seed, first_seed + THREADS)
    with ThreadPoolExecutor(THREADS) as threads:
        tallies = list(threads.map(lambda seed: attack(server.endpoint, seed, mutations // THREADS), seeds))
    statuses = sum((tally for tally, _ in tallies), Counter())
    failures = [failure for _, failed in tallies for failure in failed]
    assert failures == []
    assert statuses.total() == mutations
    assert min(statuses["OK"], statuses["INVALID_ARGUMENT"]) > mutations / 10
    after = server.settled(before, sockets=8)
    assert after.streams == 0
    assert after.threads <= before.threads + POOL_THREADS
    assert after.sockets <= before.sockets + 8
    assert after.memory_mib <= before.memory_mib + 200


def attack(endpoint: str, seed: int, mutations: int) -> tuple[Counter[str], list[str]]:
    """One attacker's share: how often each status came, and what should never come."""
    wire = Wire(endpoint)
    mutator = Mutator(seed)
    statuses: Counter[str] = Counter()
    failures = []
    methods = all_methods()
    for number in range(mutations):
        if number % FRESH_STAGE_EVERY == 0:
            stage = set_stage(wire)
        method = methods[number % len(methods)]
        data, status = send_one(wire, mutator, method, stage)
        statuses[status.code] += 1
        if status.code in FAILURES:
            failures.append(f"seed {seed} number {number} {method.path} {data!r}: {status}")
    wire.close()
    return statuses, failures


def send_one(wire: Wire, mutator: Mutator, method: Method, stage: Stage) -> tuple[object, Status]:
    """Send one mutated request, or for a stream some of them after a good beginning; what was sent and its status."""
    valid: list[Message] = valid_requests(stage.run, stage.attempt, stage.fingerprint)[method.request]
    if method.path == STREAM:
        opening, *others = mutator.choose([valid, [eval_open(), credit(2)]])
        messages = [opening, *mutator.shuffled(others)]
        victim = mutator.choose(range(len(messages)))
        sent = [mutator.mutate(each) if each is messages[victim] else each.SerializeToString() for each in messages]
        return sent, wire.conversation(sent)[0]
    data = mutator.mutate(mutator.choose(valid))
    if method.server_streams:
        return data, wire.server_stream(method.path, data)
    return data, wire.unary(method.path, data)[0]
