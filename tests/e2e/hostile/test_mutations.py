"""Ten thousand damaged requests: none ends the server, hangs, or leaves anything behind."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from google.protobuf.message import Message
from hostilelab.methods import Method, all_methods, valid_requests
from hostilelab.mutate import Mutator
from hostilelab.stage import Stage, set_stage
from hostilelab.victim import VictimServer
from hostilelab.wire import STREAM, Status, Wire

MUTATIONS = 10_000
THREADS = 4
FRESH_STAGE_EVERY = 50

# Ends of a call that mean that the server did not cope.
FAILURES = frozenset({"INTERNAL", "UNKNOWN", "UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED", "DATA_LOSS"})


def test_each_method_has_a_valid_request_to_mutate(wire: Wire):
    requests = valid_requests("run", 1, "fingerprint")
    assert set(requests) == {method.request for method in all_methods()}


def test_ten_thousand_mutations_of_valid_requests_do_no_harm(server: VictimServer):
    before = server.settled(server.vitals())
    with ThreadPoolExecutor(THREADS) as threads:
        tallies = list(threads.map(lambda seed: attack(server.endpoint, seed), range(THREADS)))
    statuses = sum((tally for tally, _ in tallies), Counter())
    failures = [failure for _, failed in tallies for failure in failed]
    assert failures == []
    assert statuses.total() >= MUTATIONS
    assert statuses["OK"] > 0
    assert statuses["INVALID_ARGUMENT"] > MUTATIONS / 10
    after = server.settled(before, threads=8, descriptors=8)
    assert after.streams == 0
    assert after.threads <= before.threads + 8
    assert after.descriptors <= before.descriptors + 8
    assert after.memory_mib <= before.memory_mib + 200


def attack(endpoint: str, seed: int) -> tuple[Counter[str], list[str]]:
    """One attacker's share: how often each status came, and what should never come."""
    wire = Wire(endpoint)
    mutator = Mutator(seed)
    statuses: Counter[str] = Counter()
    failures = []
    methods = all_methods()
    for number in range(MUTATIONS // THREADS):
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
        messages = [message.SerializeToString() for message in mutator.shuffled(valid)]
        messages = [valid[0].SerializeToString(), *messages]
        messages[mutator.choose(range(len(messages)))] = mutator.mutate(mutator.choose(valid))
        return messages, wire.conversation(messages)[0]
    data = mutator.mutate(mutator.choose(valid))
    if method.server_streams:
        return data, wire.server_stream(method.path, data)
    return data, wire.unary(method.path, data)[0]
