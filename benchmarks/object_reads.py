"""Ranged GETs of 4 and 16 MiB from a real S3 server on loopback, by the library that makes them.

    storage      what the data server uses: obstore, with version, position and deadline checked
    fsspec       s3fs, one event loop in a thread, as `fs.cat_file`
    botocore     a thread per request
    pyarrow.fs   Arrow's own S3 client, on a file that was opened before

Interleaved. The server takes most of the two cores, so throughput says little by itself: CPU seconds
per GB are the client's own. `busy` is the same beside a thread that computes in Python, as a process
that serves has; there a library pays for each time that it needs the interpreter.

Only `storage` says which version it expects, notices a short answer and goes on where it stopped. A
library that is not installed is left out.
"""

import os
import statistics
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from benchmarks.report import Spread, report
from benchmarks.s3_server import ACCESS_KEY, REGION, SECRET_KEY, running_s3
from dataserver.storage import open_storage

MIB = 1 << 20
OBJECT_BYTES = 64 * MIB
SIZES = (4 * MIB, 16 * MIB)
IN_FLIGHT = (1, 8)
READS, REPEATS = 24, 3
BUSY_READS = 8


def storage(server):
    opened = open_storage("s3://bench/store", server.options)
    info = opened.stat("object")
    return lambda begin, end: opened.read(info, begin, end)


def fsspec(server):
    import s3fs

    files = s3fs.S3FileSystem(key=ACCESS_KEY, secret=SECRET_KEY, endpoint_url=server.endpoint)
    return lambda begin, end: files.cat_file("bench/store/object", start=begin, end=end)


def botocore(server):
    from botocore.config import Config
    from botocore.session import Session

    config = Config(max_pool_connections=max(IN_FLIGHT), region_name=REGION)
    client = Session().create_client("s3", endpoint_url=server.endpoint, config=config)

    def read(begin, end):
        answer = client.get_object(Bucket="bench", Key="store/object", Range=f"bytes={begin}-{end - 1}")
        return answer["Body"].read()

    return read


def pyarrow_fs(server):
    from pyarrow.fs import S3FileSystem

    endpoint = server.endpoint.removeprefix("http://")
    files = S3FileSystem(endpoint_override=endpoint, scheme="http", region=REGION)
    opened = files.open_input_file("bench/store/object")
    return lambda begin, end: opened.read_at(end - begin, begin)


WAYS = {"storage": storage, "fsspec": fsspec, "botocore": botocore, "pyarrow.fs": pyarrow_fs}
IMPORTS = {
    "storage": "dataserver.storage.buckets",
    "fsspec": "s3fs",
    "botocore": "botocore.session",
    "pyarrow.fs": "pyarrow.fs",
}


def main():
    with running_s3() as server:
        os.environ.update(server.environment)
        data = np.random.default_rng(1).integers(0, 256, OBJECT_BYTES, dtype=np.uint8).tobytes()
        server.put("bench", "store/object", data)
        ways = dict(made(server))
        rows = [
            {"read by": name} | row
            for size in SIZES
            for flight in IN_FLIGHT
            for name, row in measured(ways, size, flight)
        ]
        report(
            "object_reads", "Ranged GETs from S3 on loopback", rows, ["median (range) of repeats; p99 over all reads"]
        )
        report("object_reads_busy", "4 MiB reads, one at a time, beside a Python-busy thread", busy(ways))


def made(server):
    for name, make in WAYS.items():
        try:
            yield name, make(server)
        except ImportError as error:
            print(f"{name} is left out: {error}")


def measured(ways, size, flight):
    """Rows of all ways, their repeats interleaved."""
    rates, cpu, times = ({name: [] for name in ways} for _ in range(3))
    with ThreadPoolExecutor(flight) as pool:
        for repeat in range(REPEATS + 1):
            for name, read in ways.items():
                cpu_began, began = time.process_time(), time.perf_counter()
                took = list(pool.map(lambda at, read=read: timed(read, at, size), range(READS)))
                if repeat == 0:  # connections are made
                    continue
                gigabytes = READS * size / 1e9
                rates[name].append(gigabytes / (time.perf_counter() - began))
                cpu[name].append((time.process_time() - cpu_began) / gigabytes)
                times[name] += took
    best = statistics.median(rates["storage"])
    for name in ways:
        yield (
            name,
            {
                "MiB": size // MIB,
                "in flight": flight,
                "GB/s": Spread.of(rates[name]),
                "to storage": statistics.median(rates[name]) / best,
                "CPU s/GB": Spread.of(cpu[name]),
                "p50 ms": float(np.percentile(times[name], 50) * 1e3),
                "p99 ms": float(np.percentile(times[name], 99) * 1e3),
            },
        )


def timed(read, at, size):
    begin = at * size % (OBJECT_BYTES - size)
    began = time.perf_counter()
    assert len(read(begin, begin + size)) == size
    return time.perf_counter() - began


def busy(ways):
    ending = threading.Event()

    def compute():
        while not ending.is_set():
            sum(range(1000))

    idle = {
        name: statistics.median(timed(read, at, SIZES[0]) for at in range(BUSY_READS)) for name, read in ways.items()
    }
    thread = threading.Thread(target=compute)
    thread.start()
    try:
        rows = []
        for name, read in ways.items():
            took = Spread.of([timed(read, at, SIZES[0]) * 1e3 for at in range(BUSY_READS)])
            rows.append(
                {"read by": name, "ms": took, "idle ms": idle[name] * 1e3, "times": took.median / idle[name] / 1e3}
            )
    finally:
        ending.set()
        thread.join()
    bare = import_ms("sys")
    return [row | {"import ms": import_ms(IMPORTS[row["read by"]]) - bare} for row in rows]


def import_ms(module):
    times = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", f"import {module}"], check=True)
        times.append((time.perf_counter() - began) * 1e3)
    return min(times)


if __name__ == "__main__":
    main()
