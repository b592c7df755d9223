"""A planned micro-batch holds exactly the rows that the plan names, in its order, on every rank."""

import itertools
from collections import Counter

import numpy as np
import pytest

from dataserver.batching.encode import Encoded, encode_planned
from dataserver.batching.table import SourceTable
from dataserver.planning.planner import Planner
from dataserver.run_spec import BatchSpec, LongRows, Shuffle
from dataserver.sampling.order import Place
from dataserver.sampling.union import plain_union
from dataserver.stores import open_store
from dataserver.stores.block_cache import BlockCache
from dataserver.stores.decoded import DecodedReader
from dataserver.testing import write_store
from dataserver.wire.micro_batch import NO_TARGET
from dataserver.wire.responses import decode_response

MAX_LENGTH = 24


def decoded_one(data):
    """What a response carries, which is one thing."""
    (one,) = decode_response(data)
    return one


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """Two stores, one of either format, with the rows that they were written from."""
    directory = tmp_path_factory.mktemp("stores")
    random = np.random.default_rng(5)
    stores, rows = [], []
    for name, count, format_ in (("a", 40, "arrow"), ("b", 25, "parquet")):
        lengths = random.integers(2, 40, count)
        values = [(random.integers(0, 90_000, n).tolist(), random.integers(0, 2, n).tolist()) for n in lengths]
        path = write_store(directory / name, rows=values, format=format_, shards=3)
        stores.append(open_store(path, index_dir=directory / "indexes"))
        rows.append(values)
    yield stores, rows
    for store in stores:
        store.close()


def kept(values):
    """The rows that are served, truncated, by a reference that walks them one by one."""
    return [(tokens[:MAX_LENGTH], mask[:MAX_LENGTH]) for tokens, mask in values if any(mask[1:MAX_LENGTH])]


def table_of(stores):
    views = [store.view(MAX_LENGTH, LongRows.TRUNCATE) for store in stores]
    return SourceTable(views, token_bytes=max(store.token_bytes for store in stores))


@pytest.mark.parametrize("alignment", [1, 8])
@pytest.mark.parametrize("dp_world_size", [1, 3])
def test_an_epoch_decodes_to_every_kept_row_once(sources, alignment, dp_world_size):
    stores, rows = sources
    table = table_of(stores)
    planner = Planner.of_order(plain_union(table.sizes, seed=1, shuffle=Shuffle.FULL), table, "f")
    batch = BatchSpec(step_tokens=200, micro_batch_tokens=64, alignment=alignment, max_epochs=1)
    served = []
    cursor = planner.initial_cursor()
    while hasattr(plan := planner.plan(cursor, batch, dp_world_size), "rounds"):
        targets = 0
        for round_index in range(len(plan.rounds)):
            for dp_rank in range(dp_world_size):
                data = encode_planned(
                    plan,
                    table,
                    rounds=range(round_index, round_index + 1),
                    dp_rank=dp_rank,
                    alignment=alignment,
                    pad_to=0,
                    sync_weights=False,
                )
                micro_batch = decoded_one(data.some(0, 1))
                assert (micro_batch.step, micro_batch.round) == (plan.step, round_index)
                assert len(micro_batch.tokens) <= batch.micro_batch_tokens
                targets += micro_batch.target_count
                for begin, length in zip(micro_batch.cu_seqlens[:-1], micro_batch.lengths, strict=True):
                    sample = slice(begin, begin + length)
                    served.append((micro_batch.tokens[sample].tolist(), micro_batch.loss_mask[sample].tolist()))
        assert targets == plan.target_count
        cursor = plan.end
    assert sorted(served) == sorted(kept(rows[0]) + kept(rows[1]))


@pytest.mark.parametrize(("alignment", "pad_to"), [(1, 0), (8, 0), (8, 32)])
def test_rounds_that_are_encoded_together_are_those_encoded_alone(sources, alignment, pad_to):
    stores, _ = sources
    table = table_of(stores)
    planner = Planner.of_order(plain_union(table.sizes, seed=3, shuffle=Shuffle.FULL), table, "f")
    batch = BatchSpec(step_samples=30, micro_batch_tokens=64, alignment=alignment, pad_to=pad_to)
    plan = planner.plan(planner.initial_cursor(), batch, 2)
    place = {"dp_rank": 1, "alignment": alignment, "pad_to": pad_to, "sync_weights": False}
    alone = [encode_planned(plan, table, rounds=range(n, n + 1), **place) for n in range(len(plan.rounds))]
    assert len(alone) > 2
    for first, last in itertools.combinations(range(len(alone) + 1), 2):
        together = encode_planned(plan, table, rounds=range(first, last), **place)
        joined = Encoded.joined(alone[first:last])
        assert len(together) == len(joined) == last - first
        assert together.some(0, last - first) == joined.some(0, last - first)
        for begin, end in itertools.combinations(range(last - first + 1), 2):
            expected = b"".join(one.some(0, 1) for one in alone[first + begin : first + end])
            assert together.some(begin, end - begin) == expected
        assert together.tokens == sum(int(plan.lengths[plan.rounds[n][1]].sum()) for n in range(first, last))


def test_store_rows_lead_back_to_the_rows_that_were_written(sources):
    stores, rows = sources
    table = table_of(stores)
    samples = plain_union(table.sizes, seed=4, shuffle=Shuffle.FULL).samples(Place(), sum(table.sizes))
    for source, row, length in zip(samples.source, table.store_rows(samples), table.lengths(samples), strict=True):
        assert len(rows[source][row][0][:MAX_LENGTH]) == length


def test_an_empty_bin_becomes_a_micro_batch_without_weight(sources):
    stores, _ = sources
    table = table_of(stores)
    planner = Planner.of_order(plain_union(table.sizes, seed=1, shuffle=Shuffle.FULL), table, "f")
    plan = planner.plan(planner.initial_cursor(), BatchSpec(step_samples=1, micro_batch_tokens=64), 4)
    lengths = []
    for dp_rank in range(4):
        data = encode_planned(plan, table, rounds=range(1), dp_rank=dp_rank, alignment=1, pad_to=0, sync_weights=True)
        micro_batch = decoded_one(data.some(0, 1))
        assert micro_batch.sync_weights
        lengths.append(len(micro_batch.lengths))
        if not len(micro_batch.lengths):
            assert micro_batch.target_count == 0
            assert len(micro_batch.tokens) == 0
            assert micro_batch.cu_seqlens.tolist() == [0]
    assert sorted(lengths) == [0, 0, 0, 1]


@pytest.mark.parametrize("pad_to", [16, 64])
def test_padded_micro_batches_have_few_shapes_and_the_same_targets(sources, pad_to):
    stores, _ = sources
    table = table_of(stores)
    planner = Planner.of_order(plain_union(table.sizes, seed=1, shuffle=Shuffle.FULL), table, "f")
    batch = BatchSpec(step_samples=9, micro_batch_tokens=64, alignment=8, pad_to=pad_to)
    plan = planner.plan(planner.initial_cursor(), batch, 16)
    for group, dp_rank in itertools.product(range(len(plan.rounds)), range(16)):
        place = {"rounds": range(group, group + 1), "dp_rank": dp_rank, "alignment": 8, "sync_weights": False}
        padded = decoded_one(encode_planned(plan, table, pad_to=pad_to, **place).some(0, 1))
        plain = decoded_one(encode_planned(plan, table, pad_to=0, **place).some(0, 1))
        assert len(padded.tokens) % pad_to == 0
        assert 0 < len(padded.tokens) <= 64
        assert padded.padding == len(padded.tokens) - len(plain.tokens)
        assert padded.target_count == plain.target_count
        assert np.array_equal(padded.lengths, plain.lengths)
        assert np.array_equal(padded.labels[: len(plain.tokens)], plain.labels)
        assert (padded.labels[len(plain.tokens) :] == NO_TARGET).all()
        assert padded.cu_seqlens[-1] == len(padded.tokens)
        assert len(padded.cu_seqlens) == max(2, len(plain.cu_seqlens))


def test_a_block_is_decoded_once_for_a_micro_batch_also_where_the_cache_holds_no_two(tmp_path, monkeypatch):
    decoded = Counter()
    decode = DecodedReader._decode

    def counted(reader, block, file):
        decoded[reader, block] += 1
        return decode(reader, block, file)

    path = write_store(tmp_path / "store", lengths=[20] * 60, format="parquet", shards=3)
    cache = BlockCache(2**30)
    with open_store(path, index_dir=tmp_path / "indexes", cache=cache) as store:
        table = SourceTable([store.view(MAX_LENGTH, LongRows.TRUNCATE)], token_bytes=store.token_bytes)
        planner = Planner.of_order(plain_union(table.sizes, seed=1, shuffle=Shuffle.FULL), table, "f")
        plan = planner.plan(planner.initial_cursor(), BatchSpec(step_samples=30, micro_batch_tokens=1024), 1)
        blocks = table.blocks(plan.samples)
        cache.limit_bytes = max(block.needed_bytes for block in blocks)
        monkeypatch.setattr(DecodedReader, "_decode", counted)
        encode_planned(plan, table, rounds=range(1), dp_rank=0, alignment=1, pad_to=0, sync_weights=False)
    assert len(blocks) == 3
    assert sorted(decoded.values()) == [1, 1, 1]
