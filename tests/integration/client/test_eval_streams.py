"""A held-out store: every row once, in order, at any number of ranks, and whatever happens to servers."""

import itertools
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from dataserver.client import DataClient, MicroBatch
from dataserver.errors import (
    ForeignCursorError,
    InvalidRequestError,
    InvalidSpecError,
    StoreNotFoundError,
)
from dataserver.eval_spec import EvalSpec
from dataserver.run_spec import LongRows
from dataserver.testing import running_server, write_store

SPEC = EvalSpec(store="chat", max_length=64, micro_batch_tokens=96)


@pytest.fixture
def rows(store: Path) -> list[bytes]:
    """The token bytes of each row, in store order."""
    column = pa.ipc.open_stream(store / "data-00000-of-00001.arrow").read_all()["input_ids"].to_pylist()
    return [np.array(tokens, dtype=np.uint16).tobytes() for tokens in column]


@pytest.fixture
def client(store: Path):
    with running_server({"chat": store}) as server, DataClient(server.endpoint, patience_s=60) as connected:
        yield connected


def samples_of(micro_batch: MicroBatch) -> list[bytes]:
    begins = itertools.pairwise([*micro_batch.cu_seqlens])
    lengths = micro_batch.lengths.tolist()
    return [
        micro_batch.tokens[begin : begin + length].tobytes()
        for (begin, _), length in zip(begins, lengths, strict=False)
    ]


def read(client: DataClient, spec: EvalSpec, ranks: int) -> list[list[MicroBatch]]:
    """What each rank gets, by round."""

    def one(rank: int) -> list[MicroBatch]:
        with client.eval_stream(spec, dp_rank=rank, dp_world_size=ranks, credits=2) as stream:
            return list(stream)

    with ThreadPoolExecutor(ranks) as threads:
        return list(threads.map(one, range(ranks)))


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_all_ranks_together_read_every_row_once_and_in_order(client: DataClient, rows: list[bytes], ranks: int) -> None:
    got = read(client, SPEC, ranks)
    assert len({len(batches) for batches in got}) == 1
    in_order = [batch for group in zip(*got, strict=True) for batch in group]
    assert [sample for batch in in_order for sample in samples_of(batch)] == rows
    empty = [not len(batch.lengths) for batch in in_order]
    assert not any(empty[: len(empty) - ranks + 1])


def test_what_a_micro_batch_holds_does_not_depend_on_the_ranks(client: DataClient) -> None:
    alone, *others = (
        [samples_of(batch) for group in zip(*read(client, SPEC, ranks), strict=True) for batch in group]
        for ranks in (1, 2, 4)
    )
    for other in others:
        assert other[: len(alone)] == alone
        assert not any(other[len(alone) :])


def test_the_spec_says_how_many_samples_come_and_in_which_shape(client: DataClient, rows: list[bytes]) -> None:
    spec = SPEC.model_copy(update={"max_samples": 7, "alignment": 8, "pad_to": 96})
    [alone] = read(client, spec, 1)
    assert [sample for batch in alone for sample in samples_of(batch)] == rows[:7]
    assert {len(batch.tokens) for batch in alone} == {96}
    short = SPEC.model_copy(update={"max_length": 16, "long_rows": LongRows.DROP})
    [kept] = read(client, short, 1)
    assert [sample for batch in kept for sample in samples_of(batch)] == [row for row in rows if len(row) <= 2 * 16]


def test_nothing_is_written_and_no_run_is_needed(client: DataClient) -> None:
    read(client, SPEC, 2)
    assert client.list_runs() == []


def test_targets_and_tokens_of_each_step_are_told_over_all_ranks(client: DataClient) -> None:
    with client.eval_stream(SPEC, dp_rank=1, dp_world_size=2) as stream:
        told = [(step.target_count, step.sample_count, len(list(step))) for step in stream.steps]
    both = [sum(column) for column in zip(*told, strict=True)]
    [alone] = read(client, SPEC, 1)
    assert both[0] == sum(batch.target_count for batch in alone)
    assert both[1] == sum(len(batch.lengths) for batch in alone)
    assert {rounds for _, _, rounds in told} == {1}


def test_a_server_that_is_killed_is_a_pause(serve, connect, rows: list[bytes]) -> None:
    server = serve()
    client = connect(server.endpoint)
    got: list[bytes] = []
    with client.eval_stream(SPEC, credits=1) as stream:
        for number, batch in enumerate(stream):
            got += samples_of(batch)
            if number in (0, 4, 5):
                server.kill()
                server.start()
    assert got == rows


def test_another_server_goes_on_where_one_drained(store: Path, rows: list[bytes]) -> None:
    with running_server({"chat": store}) as first, running_server({"chat": store}) as second:
        with DataClient(f"{first.endpoint},{second.endpoint}", patience_s=60) as client:
            got: list[bytes] = []
            with client.eval_stream(SPEC, credits=1) as stream:
                for number, batch in enumerate(stream):
                    got += samples_of(batch)
                    if number == 2:
                        first.stop()
        assert got == rows


def test_a_store_that_was_replaced_meanwhile_is_not_mixed_in(tmp_path: Path, store: Path) -> None:
    other = write_store(tmp_path / "other", lengths=[9] * 50)
    with (
        running_server({"chat": store}) as first,
        running_server({"chat": other}) as second,
        DataClient(f"{first.endpoint},{second.endpoint}", patience_s=60) as client,
        client.eval_stream(SPEC, credits=1) as stream,
    ):
        batches = iter(stream)
        next(batches)
        first.stop()
        with pytest.raises(ForeignCursorError, match="stores"):
            list(batches)


def test_training_ranks_and_readers_do_not_wait_for_each_other(client: DataClient, spec, rows: list[bytes]) -> None:
    client.create_run("r", spec)
    attempt = client.begin_attempt("r", resume=False, world_size=1, dp_world_size=1, holder="h")
    with client.stream("r", attempt, world_rank=0, dp_rank=0, next_step=1, credits=1) as training:
        step = next(training)
        with client.eval_stream(SPEC, credits=1) as stream:
            assert [sample for batch in stream for sample in samples_of(batch)] == rows
        # Before the step is taken: that gives its credit back, and the next one may be sealed.
        run = client.get_run("r")
        assert sum(len(batch.lengths) for batch in step) > 0
    assert (run.sealed_step, run.consumed_step, run.attempt.number) == (1, 0, 1)


@pytest.mark.parametrize(
    ("change", "error", "told"),
    [
        ({"store": "none"}, StoreNotFoundError, "'none'"),
        ({"vocab_size": 100}, InvalidSpecError, "vocab_size = 100"),
    ],
)
def test_what_cannot_be_read_is_refused_at_the_first_micro_batch(client: DataClient, change, error, told: str) -> None:
    spec = SPEC.model_copy(update=change)
    with client.eval_stream(spec) as stream, pytest.raises(error, match=told):
        next(iter(stream))


def test_a_rank_that_does_not_exist_is_refused(client: DataClient) -> None:
    with (
        client.eval_stream(SPEC, dp_rank=2, dp_world_size=2) as stream,
        pytest.raises(InvalidRequestError, match="0 to 1"),
    ):
        next(iter(stream))


def test_a_micro_batch_that_is_too_small_for_a_sample_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="micro_batch_tokens = 32 is below the 64"):
        EvalSpec(store="chat", max_length=64, micro_batch_tokens=32)
