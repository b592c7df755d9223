"""How well a run was packed and what was served of each store: right whoever served, before and after it goes back."""

from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from statistics import fmean

import pytest
from serverlab import PATIENCE_S, Job, batch_spec, job_on, metric, order_spec

from dataserver.testing import RunningServer, running_server, write_store
from dataserver.v1 import cursor_service_pb2 as cursors
from dataserver.v1 import run_pb2, run_service_pb2, run_spec_pb2
from dataserver.v1.cursor_service_pb2_grpc import CursorServiceStub

CAPACITY, RANKS, STEPS, LINEAR, QUADRATIC = 64, 2, 6, 3, 1
CHAT, CODE = [5, 9, 4, 30, 17, 8, 12, 40, 22, 13] * 3, [60, 33, 21, 50] * 4


class Servers:
    """Servers on one ledger."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self._stack = stack
        self._stores = {
            "chat": write_store(directory / "chat", lengths=CHAT),
            "code": write_store(directory / "code", lengths=CODE),
        }
        self._ledger = f"sqlite:///{directory}/ledger.db"

    def start(self) -> RunningServer:
        return self._stack.enter_context(
            running_server(self._stores, ledger_url=self._ledger, metrics_listen="127.0.0.1:0", lease_s=1.0)
        )

    def job(self, server: RunningServer) -> Job:
        return self._stack.enter_context(job_on(server))


@pytest.fixture
def servers(tmp_path: Path):
    with ExitStack() as stack:
        yield Servers(tmp_path, stack)


def create(job: Job) -> None:
    order = order_spec("chat")
    order.sources.add(store="code")
    batch = batch_spec(micro_batch_tokens=CAPACITY, max_steps=STEPS, cost_linear=LINEAR, cost_quadratic=QUADRATIC)
    spec = run_spec_pb2.RunSpec(order=order, batch=batch)
    job.runs.CreateRun(run_service_pb2.CreateRunRequest(name=job.run, spec=spec), timeout=PATIENCE_S)


def sent(streams: list, steps: int) -> dict[int, list[list[list[int]]]]:
    """What the ranks got: by step, the lengths in the micro-batch of each rank in each round."""
    lengths = {}
    for _ in range(steps):
        received = [stream.take_step() for stream in streams]
        step = received[0][0].step
        for stream in streams:
            stream.ack(step)
        lengths[step] = [
            [list(each.lengths) for each in group] for group in zip(*(got for _, got in received), strict=True)
        ]
    return lengths


def figures(rounds: list[list[list[int]]]) -> tuple[float, float, float]:
    """The three figures, from the lengths that arrived."""
    costs = [[sum(LINEAR * n + QUADRATIC * n * n for n in lengths) for lengths in group] for group in rounds]
    tokens = sum(sum(lengths) for group in rounds for lengths in group)
    mean = sum(map(sum, costs)) / RANKS
    return (
        tokens / (len(rounds) * RANKS * CAPACITY),
        max(map(sum, zip(*costs, strict=True))) / mean,
        sum(map(max, costs)) / mean,
    )


def expected(job: Job, lengths: dict[int, list]) -> tuple:
    """What a run's totals are: steps, last figures, mean figures, tokens by store."""
    of_steps = [figures(lengths[step]) for step in sorted(lengths)]
    tokens: Counter[str] = Counter()
    describe = CursorServiceStub(job.channel).DescribeStep
    for step in lengths:
        described = describe(cursors.DescribeStepRequest(run=job.run, step=step), timeout=PATIENCE_S)
        for planned in described.micro_batches:
            for sample in planned.samples:
                tokens[sample.store] += {"chat": CHAT, "code": CODE}[sample.store][sample.row]
    assert sum(tokens.values()) == sum(sum(map(sum, group)) for rounds in lengths.values() for group in rounds)
    return len(lengths), of_steps[-1], tuple(map(fmean, zip(*of_steps, strict=True))), dict(tokens)


def check(totals: run_pb2.SealedTotals, job: Job, lengths: dict[int, list]) -> None:
    steps, last, mean, tokens = expected(job, lengths)
    shown = [(each.token_efficiency, each.rank_imbalance, each.round_inflation) for each in (totals.last, totals.mean)]
    assert totals.steps == steps
    assert shown[0] == pytest.approx(last, rel=1e-12)
    assert shown[1] == pytest.approx(mean, rel=1e-12)
    assert {each.store: each.tokens for each in totals.stores} == tokens
    assert {each.store: each.share for each in totals.stores} == pytest.approx(
        {store: count / sum(tokens.values()) for store, count in tokens.items()}
    )


def test_totals_are_those_of_all_servers_and_survive_them_and_go_back_with_the_run(servers: Servers) -> None:
    first, second = servers.start(), servers.start()
    job = servers.job(first)
    create(job)
    assert not job.shown().HasField("totals")
    attempt = job.begin(RANKS)
    streams = [job.stream(attempt, 0), job.stream(attempt, 1, server=second)]
    lengths = sent(streams, STEPS)
    check(job.shown().totals, job, lengths)
    for server in (first, second):
        for each in job.shown().totals.stores:
            assert metric(server, "dataserver_run_tokens", run="run", store=each.store) == each.tokens
    for stream in streams:
        stream.half_close()

    third = servers.start()
    later = servers.job(third)
    check(later.shown().totals, later, lengths)
    CursorServiceStub(later.channel).RewindRun(cursors.RewindRunRequest(run="run", version=2), timeout=PATIENCE_S)
    kept = {step: rounds for step, rounds in lengths.items() if step <= 2}
    check(later.shown().totals, later, kept)

    attempt = later.begin(RANKS, mode=run_service_pb2.BEGIN_MODE_RESUME, version=2)
    streams = [later.stream(attempt, rank, next_step=3) for rank in range(RANKS)]
    again = sent(streams, STEPS - 2)
    assert again[3] == lengths[3]
    check(later.shown().totals, later, kept | again)
