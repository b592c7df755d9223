"""A trainer on steps of 20 ms, fed from row groups in a storage whose every GET takes 30 ms longer than memory.

    local      the same rows as mapped Arrow: what the wait is without any storage
    ahead      Parquet in the storage, no disk cache; blocks of planned steps are loaded ahead
    on demand  the same, without loading ahead

Each with the ledger on the disk, where a seal waits until its bytes lie there, and in memory, which tells what is the
disk's part: the ledger's disk may be busier than any storage.

Shuffled by blocks, one epoch; runs interleaved. `stall`: waiting in the client's loop beside the time of the steps,
first steps left out. GETs and bytes are counted at the storage.
"""

import multiprocessing
import statistics
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.report import Spread, report
from dataserver.client import DataClient
from dataserver.run_spec import BatchSpec, OrderSpec, RunSpec, Shuffle, Source
from dataserver.server.memory import settle
from dataserver.testing import running_server

GROUPS, ROWS_PER_GROUP, LENGTHS = 200, 400, (20, 220)
STEP_S, LATENCY_S = 0.020, 0.030
STEP_TOKENS = 40_000
WARM_UP_STEPS = 5
REPEATS = 5
# Where the ledger lies: in the usual directory of temporary files, or in Linux's file system in memory.
LEDGERS = {"disk": None, "memory": "/dev/shm"}  # noqa: S108


def write(directory):
    random = np.random.default_rng(0)
    rows = GROUPS * ROWS_PER_GROUP
    offsets = np.concatenate(([0], np.cumsum(random.integers(*LENGTHS, rows)))).astype(np.int32)
    ids = pa.array(random.integers(0, 60_000, offsets[-1], dtype=np.int32))
    ones = pa.array(np.ones(offsets[-1], np.int8))
    table = pa.table(
        {
            "input_ids": pa.ListArray.from_arrays(pa.array(offsets), ids),
            "loss_mask": pa.ListArray.from_arrays(pa.array(offsets), ones),
        }
    )
    for name in ("arrow", "parquet"):
        (directory / name).mkdir()
    pq.write_table(table, directory / "parquet" / "a.parquet", row_group_size=ROWS_PER_GROUP)
    with pa.ipc.new_file(str(directory / "arrow" / "a.arrow"), table.schema) as writer:
        writer.write_table(table, max_chunksize=ROWS_PER_GROUP)


def serve(kind: str, ledger: str, directory: Path, pipe: Connection) -> None:
    """A server in a process of its own, until the pipe says so; answers with what was read of the storage."""
    from dataserver.storage.memory import MemoryStorage
    from dataserver.streaming.fetches import Fetches

    fsspec.filesystem("memory").pipe_file("/bench/a.parquet", (directory / "parquet" / "a.parquet").read_bytes())
    reads: list[tuple[int, int]] = []
    read = MemoryStorage.read

    def delayed(self, info, begin, end):
        reads.append((begin, end))
        time.sleep(LATENCY_S)
        return read(self, info, begin, end)

    MemoryStorage.read = delayed
    if kind == "on demand":
        Fetches.start = lambda *_: None
    path = directory / "arrow" if kind == "local" else "memory://bench"
    with (
        tempfile.TemporaryDirectory(dir=LEDGERS[ledger]) as ledger_directory,
        running_server(
            {"rows": path},
            ledger_url=f"sqlite:///{ledger_directory}/ledger.db",
            index_dir=directory / "index",
            disk_cache_bytes=0,
        ) as server,
    ):
        settle()
        reads.clear()
        pipe.send(server.endpoint)
        pipe.recv()
    pipe.send(reads)


def epoch(kind: str, ledger: str, directory: Path) -> tuple[float, list[tuple[int, int]]]:
    """Share of the steps' time that was waited, and the reads at the storage."""
    here, there = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(kind, ledger, directory, there))
    server.start()
    waits = []
    spec = RunSpec(
        order=OrderSpec(sources=(Source(store="rows"),), max_length=256, seed=1, shuffle=Shuffle.BLOCK),
        batch=BatchSpec(step_tokens=STEP_TOKENS, micro_batch_tokens=16_384, max_epochs=1),
    )
    with DataClient(here.recv()) as client:
        client.create_run("bench", spec)
        attempt = client.begin_attempt("bench", resume=False, world_size=1, dp_world_size=1, holder="bench")
        with client.stream("bench", attempt, world_rank=0, dp_rank=0, next_step=1, credits=8) as stream:
            for step in stream:
                for _ in step:
                    pass
                time.sleep(STEP_S)
                stream.ack(step)
                waits.append(step.wait_s)
    here.send("done")
    reads = here.recv()
    server.join()
    counted = waits[WARM_UP_STEPS:]
    return sum(counted) / (STEP_S * len(counted)), reads


def main() -> None:
    kinds = [(kind, ledger) for ledger in LEDGERS for kind in ("local", "ahead", "on demand")]
    stalls: dict[tuple[str, str], list[float]] = {kind: [] for kind in kinds}
    reads: dict[tuple[str, str], list[list[tuple[int, int]]]] = {kind: [] for kind in kinds}
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        write(directory)
        stored = (directory / "parquet" / "a.parquet").stat().st_size
        for _ in range(REPEATS):
            for kind in kinds:
                stall, seen = epoch(*kind, directory)
                stalls[kind].append(100 * stall)
                reads[kind].append(seen)
    rows = [
        {
            "fed from": kind[0],
            "ledger": kind[1],
            "stall, % of the steps' time": Spread.of(stalls[kind]),
            "GETs per row group": statistics.median(len(seen) for seen in reads[kind]) / GROUPS,
            "bytes read / stored": statistics.median(sum(e - b for b, e in seen) for seen in reads[kind]) / stored,
        }
        for kind in kinds
    ]
    report("object_store", f"One epoch of {GROUPS} row groups behind {LATENCY_S * 1000:.0f} ms a GET", rows)


if __name__ == "__main__":
    main()
