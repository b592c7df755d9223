"""A held-out store that is read more than once."""

import asyncio

import pytest
from prometheus_client import CollectorRegistry

from dataserver.eval_spec import EvalSpec
from dataserver.stores import BlockCache, open_store
from dataserver.streaming.catalog import StoreCatalog
from dataserver.streaming.contexts import build_context
from dataserver.streaming.held_out import Reading
from dataserver.streaming.metrics import Metrics
from dataserver.streaming.threads import Threads
from dataserver.testing import write_store

SPEC = EvalSpec(store="chat", max_length=64, micro_batch_tokens=96)


@pytest.fixture
def catalog(tmp_path):
    path = write_store(tmp_path / "chat", lengths=[9] * 8, format="parquet")
    catalog = StoreCatalog({"chat": open_store(path, index_dir=tmp_path / "index", cache=BlockCache(1 << 24))})
    yield catalog
    catalog.close()


def test_who_reads_it_again_has_blocks_loaded_ahead_too(catalog):
    async def read_again() -> list[bool]:
        threads = Threads(Metrics(CollectorRegistry()), ledger_wait_s=60.0, plan_wait_s=60.0)
        reading = Reading(SPEC, 1, build_context(SPEC.as_run().order, catalog), threads)
        reading.enter(0)
        reading.leave(0)
        reading.enter(0)
        plan = await reading.plan(reading.context.planner.initial_cursor())
        await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()})
        threads.close()
        return [ref.is_held for ref in reading.context.stages[0].table.blocks(plan.samples)]

    assert asyncio.run(read_again()) == [True]
