"""Micro-batches of decoded stores are the same bytes whatever is held, and few of them wait for each other's blocks."""

import pytest
from prometheus_client import CollectorRegistry

from dataserver.batching.encode import encode_planned
from dataserver.batching.table import SourceTable
from dataserver.planning.planner import Planner
from dataserver.run_spec import BatchSpec, LongRows, Shuffle
from dataserver.sampling.union import plain_union
from dataserver.stores import open_store
from dataserver.stores.block_cache import BlockCache
from dataserver.streaming.encodings import cut
from dataserver.streaming.fetches import MOST_DECODED_TOGETHER, Fetches
from dataserver.streaming.metrics import Metrics
from dataserver.streaming.threads import Threads
from dataserver.testing import write_store

BATCH = BatchSpec(step_samples=60, micro_batch_tokens=64)
PLACE = {"dp_rank": 0, "alignment": 1, "pad_to": 0, "sync_weights": False}
LIMIT = 1 << 20


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    directory = tmp_path_factory.mktemp("stores")
    lengths = [2 + number % 30 for number in range(90)]
    return {
        kind: write_store(directory / kind, lengths=lengths, format=kind, shards=9) for kind in ("arrow", "parquet")
    }


@pytest.fixture
def threads():
    pools = Threads(Metrics(CollectorRegistry()), ledger_wait_s=60, plan_wait_s=60)
    yield pools
    pools.close()


def step_of(store):
    table = SourceTable([store.view(64, LongRows.TRUNCATE)], token_bytes=store.token_bytes)
    planner = Planner.of_order(plain_union(table.sizes, seed=1, shuffle=Shuffle.FULL), table, "f")
    return table, planner.plan(planner.initial_cursor(), BATCH, 1)


@pytest.mark.parametrize("room", ["for all blocks", "for one"])
async def test_what_is_not_held_is_loaded_and_gives_the_same_bytes(paths, tmp_path, threads, room):
    with open_store(paths["parquet"], index_dir=tmp_path) as store:
        needed = [int(blocks.needed_bytes.max()) for blocks in store.tables.blocks]
    cache = BlockCache(sum(needed) if room == "for all blocks" else max(needed))
    with (
        open_store(paths["parquet"], index_dir=tmp_path, cache=cache) as store,
        open_store(paths["arrow"], index_dir=tmp_path) as mapped,
    ):
        table, plan = step_of(store)
        expected_table, expected_plan = step_of(mapped)
        fetches = Fetches([table], threads)
        groups = cut(len(plan.rounds), fetches.together(plan, BATCH, LIMIT), credits_left=16, grant=16)
        assert len(groups) > 2
        for rounds in groups:
            found = await fetches.encode(plan, rounds=rounds, **PLACE)
            expected = encode_planned(expected_plan, expected_table, rounds=rounds, **PLACE)
            assert (len(found), found.tokens) == (len(expected), expected.tokens)
            assert found.some(0, len(found)) == expected.some(0, len(expected))


def test_small_micro_batches_go_together_and_decoded_ones_a_few_at_a_time(paths, tmp_path, threads):
    for kind, most in (("arrow", 60), ("parquet", MOST_DECODED_TOGETHER)):
        with open_store(paths[kind], index_dir=tmp_path) as store:
            table, plan = step_of(store)
            assert Fetches([table], threads).together(plan, BATCH, LIMIT) >= most
            assert (kind == "arrow") or Fetches([table], threads).together(plan, BATCH, LIMIT) == most
            assert Fetches([table], threads).together(plan, BATCH, 1) == 1
