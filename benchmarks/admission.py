"""Admission of 100,000 rows of 256 tokens: every byte hashed, every row checked and indexed.

    objects    the same rows as Python objects (`to_pylist`), checked one by one by the same rules
    admit      `open_store` with an empty index directory, digest and index included
    open       `open_store` again, with the index that is there
    command    `dataserver store check` with the index there, beside a process that imports the same and ends

Formats and ways run interleaved; what counts is CPU time, which other work on the machine moves less than the clock.
"""

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.report import Spread, report
from dataserver.stores import open_store

ROWS, LENGTH, REPEATS, SEED = 100_000, 256, 7, 3

# Objects take seconds, and are as slow each time.
OBJECT_REPEATS = 2

IMPORTS = "import dataserver.cli.main, dataserver.cli.store, dataserver.cli.store_report, dataserver.stores.description"


def main():
    rows = []
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        paths = write(directory)
        seconds = {(kind, way): [] for kind in paths for way in ("objects", "admit", "open")}
        for repeat in range(REPEATS):
            for kind, path in paths.items():
                index = directory / "index"
                shutil.rmtree(index, ignore_errors=True)
                seconds[kind, "admit"].append(cpu_seconds(opened, path, index))
                seconds[kind, "open"].append(cpu_seconds(opened, path, index))
                if repeat < OBJECT_REPEATS:
                    seconds[kind, "objects"].append(cpu_seconds(check_objects, path))
        rows = [row(kind, path, seconds, directory) for kind, path in paths.items()]
    report("admission", f"{ROWS:,} rows of {LENGTH} tokens", rows, ["CPU ms, median (range)"])


def row(kind, path, seconds, directory):
    times = {way: Spread.of([taken * 1e3 for taken in seconds[kind, way]]) for way in ("objects", "admit", "open")}
    arrow = Spread.of(seconds["arrow", "admit"]).median * 1e3
    return {
        "format": kind,
        "MB": path.stat().st_size / 1e6,
        **times,
        "objects / admit": times["objects"].median / times["admit"].median,
        "admit / Arrow's": times["admit"].median / arrow,
        "GB/s of tokens and masks": ROWS * LENGTH * 5 / 1e6 / times["admit"].median,
        **command(path, directory),
    }


def write(directory):
    random = np.random.default_rng(SEED)
    offsets = np.arange(0, (ROWS + 1) * LENGTH, LENGTH, dtype=np.int32)
    ids = pa.array(random.integers(0, 150_000, ROWS * LENGTH, dtype=np.int32))
    # Two turns a row, a question and an answer each.
    turn = np.arange(ROWS * LENGTH) % (LENGTH // 2)
    answer = np.repeat(random.integers(1, LENGTH // 2, 2 * ROWS), LENGTH // 2)
    mask = pa.array((turn >= answer).astype(np.int8))
    table = pa.table({
        "input_ids": pa.ListArray.from_arrays(pa.array(offsets), ids),
        "loss_mask": pa.ListArray.from_arrays(pa.array(offsets), mask),
    })  # fmt: skip
    paths = {"arrow": directory / "rows.arrow", "parquet": directory / "rows.parquet"}
    with pa.OSFile(str(paths["arrow"]), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=10_000)
    pq.write_table(table, paths["parquet"], row_group_size=10_000)
    return paths


def check_objects(path):
    """What a loader does that makes objects of rows; returns the rows that are kept."""
    table = pq.read_table(path) if path.suffix == ".parquet" else pa.ipc.open_file(path).read_all()
    kept = 0
    for number, (ids, mask) in enumerate(
        zip(table["input_ids"].to_pylist(), table["loss_mask"].to_pylist(), strict=True)
    ):
        if len(ids) != len(mask):
            raise ValueError(f"row {number}: lengths differ")
        if any(value not in (0, 1) for value in mask):
            raise ValueError(f"row {number}: mask")
        if any(not 0 <= token < 2**31 for token in ids):
            raise ValueError(f"row {number}: token")
        kept += 1 in mask[1:]
    return kept


def command(path, directory):
    """CPU ms of the command with a warm index, of Python, and of Python with the command's imports."""
    environment = os.environ | {"HOME": str(directory)}
    check = [sys.executable, "-m", "dataserver.cli.main", "store", "check", str(path)]
    processes = {
        "python": [sys.executable, "-c", "pass"],
        "imports": [sys.executable, "-c", IMPORTS],
        "command": check,
    }
    subprocess.run(check, env=environment, stdout=subprocess.DEVNULL, check=True)
    taken = {name: [] for name in processes}
    for _ in range(REPEATS):
        for name, process in processes.items():
            taken[name].append(process_ms(process, environment))
    spreads = {name: Spread.of(values) for name, values in taken.items()}
    return {**spreads, "warm beyond imports": spreads["command"].median - spreads["imports"].median}


def process_ms(process, environment):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(process, env=environment, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e3


def opened(path, index):
    open_store(path, index_dir=index).close()


def cpu_seconds(call, *arguments):
    began = time.process_time()
    call(*arguments)
    return time.process_time() - began


if __name__ == "__main__":
    main()
