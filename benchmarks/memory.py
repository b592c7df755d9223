"""Memory of a serving process: for a store of 10 GB beside one of 10 MB, with 1 and 64 clients, and over many steps.

Resident memory is split in two. `anonymous` is the process's own; `file` is pages of mapped stores and indexes, which
the kernel takes back whenever somebody needs them. The large store is one shard under many names (hard links), so
that it takes the disk of one and the index of all.
"""

import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path

from benchmarks.report import report
from benchmarks.stream import serving
from dataserver.client import DataClient
from dataserver.run_spec import BatchSpec, OrderSpec, RunSpec, Source
from dataserver.testing import write_store

LENGTH, BYTES_A_ROW, SHARD_ROWS, SEED = 512, 512 * 5, 40_000, 3
STORES = {"10 MB": 10**7, "10 GB": 10**10}

CLIENTS = (1, 64)
CAPACITY, STEPS = 2**15, 12

# Whoever runs all benchmarks waits no longer than this for the tiny steps.
TINY_STEPS, TINY_SECONDS = 100_000, 1200.0
MARKS = (1000, 3000, 10_000, 30_000, 100_000)


def main():
    rows = []
    with tempfile.TemporaryDirectory() as name:
        for store, size in STORES.items():
            path = linked_store(Path(name) / store.replace(" ", ""), size)
            rows += [serve_clients(Path(name), store, path, clients) for clients in CLIENTS]
        marks = serve_tiny_steps(Path(name), Path(name) / "10MB")
    notes = []
    for small, large in zip(rows[: len(CLIENTS)], rows[len(CLIENTS) :], strict=True):
        more = large["anonymous MB"] - small["anonymous MB"]
        notes.append(f"{small['clients']} clients: the large store's server has {more:+.0f} MB anonymous memory")
    report("memory", f"Resident memory of the server after {STEPS} steps of {CAPACITY:,} tokens a client", rows, notes)
    report("memory_steps", "Resident memory of the server over steps of one sample", marks)


def linked_store(path, size):
    rows = min(SHARD_ROWS, size // BYTES_A_ROW)
    write_store(path, lengths=[LENGTH] * rows, vocab_size=150_000, seed=SEED)
    (first,) = path.iterdir()
    for number in range(1, round(size / (rows * BYTES_A_ROW))):
        (path / f"linked-{number:05}{first.suffix}").hardlink_to(first)
    return path


def serve_clients(directory, store, path, clients):
    with serving(directory, path, name=f"{path.name}-{clients}") as (endpoint, process):
        idle = resident(process.pid)
        consume(endpoint, clients)
        after = resident(process.pid)
    return {
        "store": store,
        "clients": clients,
        "idle anonymous MB": idle["RssAnon"],
        "anonymous MB": after["RssAnon"],
        "file MB": after["RssFile"],
        "highest MB": after["VmHWM"],
    }


def consume(endpoint, clients):
    """`clients` ranks of one run take their steps, each with a connection of its own."""
    batch = BatchSpec(step_tokens=CAPACITY * clients, micro_batch_tokens=CAPACITY, max_steps=STEPS)
    order = OrderSpec(sources=(Source(store="bench"),), max_length=LENGTH, seed=SEED)
    failures = []

    def take(client, attempt, rank):
        try:
            with client.stream("memory", attempt, world_rank=rank, dp_rank=rank, next_step=1) as steps:
                for step in steps:
                    for micro_batch in step:
                        micro_batch.tokens.sum()
                    steps.ack(step)
        except Exception as error:  # noqa: BLE001  # told to whoever waits for the threads
            failures.append(error)

    with ExitStack() as stack:
        connected = [stack.enter_context(DataClient(endpoint)) for _ in range(clients)]
        connected[0].create_run("memory", RunSpec(order=order, batch=batch))
        attempt = connected[0].begin_attempt(
            "memory", resume=False, cursor=None, version=None, world_size=clients, dp_world_size=clients, batch=None,
            holder="bench",
        )  # fmt: skip
        threads = [threading.Thread(target=take, args=(client, attempt, rank)) for rank, client in enumerate(connected)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]


def serve_tiny_steps(directory, path):
    """Memory after so and so many steps of one sample each, until the time is over."""
    batch = BatchSpec(step_samples=1, micro_batch_tokens=LENGTH, max_steps=TINY_STEPS)
    order = OrderSpec(sources=(Source(store="bench"),), max_length=LENGTH, seed=SEED)
    rows = []
    with serving(directory, path, name="tiny") as (endpoint, process), DataClient(endpoint) as client:
        client.create_run("memory", RunSpec(order=order, batch=batch))
        attempt = client.begin_attempt(
            "memory", resume=False, cursor=None, version=None, world_size=1, dp_world_size=1, batch=None, holder="bench"
        )
        began = time.monotonic()
        with client.stream("memory", attempt, world_rank=0, dp_rank=0, next_step=1) as steps:
            for step in steps:
                list(step)
                steps.ack(step)
                over = time.monotonic() - began > TINY_SECONDS
                if step.number in MARKS or over:
                    now = resident(process.pid)
                    rows.append({
                        "steps": step.number, "seconds": time.monotonic() - began,
                        "anonymous MB": now["RssAnon"], "file MB": now["RssFile"],
                    })  # fmt: skip
                if over:
                    break
    return rows


def resident(pid):
    """Megabytes from /proc/<pid>/status."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {line.split(":")[0]: int(line.split()[1]) / 1024 for line in lines if line.endswith(" kB")}


if __name__ == "__main__":
    main()
