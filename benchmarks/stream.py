"""One server to one client, from the mapped store to numpy views, beside raw TCP in the same run.

    tcp           a socket that sends one constant buffer over and over, which is received into one buffer
    tcp, mapped   a socket that sends the mapped store from end to end, which is received into arrays as they come
    tcp, worked   a socket whose sender gathers, packs and hashes the same micro-batches: what any transport pays
    grpc          grpc.aio sends one constant message, as large as the stream's, over and over to a channel as ours
    stream        `dataserver serve` and `dataserver.client`: plan, gather, checksum, gRPC, checksum, views

They run interleaved. All are counted by what they bring, which is what store and views hold: four bytes a token and one
of its mask. `tcp` and `tcp, mapped` send these bytes; the others send the mask as bits. The client reads every token
once (a sum), so that views are not free. A stream is several epochs, some thirty steps, from its open to its end: what
a first step waits for, its plan above all, is counted, but is less of the time than of the eight steps of one epoch.
CPU seconds are those of the whole server process and of the whole client, per 10^9 tokens.
"""

import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.report import Spread, report
from benchmarks.transports import constant, gathering, mapped, over_grpc, over_tcp, sent_bytes
from dataserver.client import DataClient
from dataserver.client.client import DEFAULT_CREDITS
from dataserver.run_spec import BatchSpec, OrderSpec, RunSpec, Source
from dataserver.streaming.encodings import TOGETHER_BYTES
from dataserver.streaming.message_size import largest_message_bytes
from dataserver.testing import write_store

SAMPLES, EPOCHS, RUNS, SEED = 120_000, 4, 5, 3
SHAPES = {"chat": (330, 1.0, 4096), "reasoning": (5000, 0.85, 32768)}
# Tokens of a micro-batch, and how many of them a client lets come ahead: small ones cost little memory, and share
# messages by halves of that.
MICRO_BATCHES = (
    (2**15, DEFAULT_CREDITS),
    (2**15, 4 * DEFAULT_CREDITS),
    (2**17, DEFAULT_CREDITS),
    (2**19, DEFAULT_CREDITS),
)
STEP_TOKENS = 2**23
# Of a token and its mask in the store and in the client's views.
BYTES = 4 + 1
TICK = os.sysconf("SC_CLK_TCK")


def main():
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        for shape, (median, sigma, longest) in SHAPES.items():
            lengths = draw_lengths(median, sigma, longest)
            path = write_store(Path(directory) / shape, lengths=lengths.tolist(), vocab_size=150_000)
            with serving(Path(directory), path, name=shape) as (endpoint, process):
                for micro_batches in MICRO_BATCHES:
                    rows.append(compare(shape, *micro_batches, longest, path, endpoint, process))
    report(
        "stream", "Mapped store to numpy views on the client", rows, ["GB/s of token and mask bytes, median (range)"]
    )


def draw_lengths(median, sigma, longest):
    count = SAMPLES * 330 // median
    drawn = np.random.default_rng(SEED).lognormal(np.log(median), sigma, count)
    return np.clip(drawn, 8, longest).astype(np.int64)


def compare(shape, capacity, ahead, longest, path, endpoint, process):
    spec = RunSpec(
        order=OrderSpec(sources=(Source(store="bench"),), max_length=longest, seed=SEED),
        batch=BatchSpec(step_tokens=STEP_TOKENS, micro_batch_tokens=max(capacity, longest), max_epochs=EPOCHS),
    )
    rates = {"tcp": [], "tcp, mapped": [], "tcp, worked": [], "grpc": [], "stream": []}
    together = min(max(1, TOGETHER_BYTES // largest_message_bytes(spec.batch, 4)), ahead // 2)
    server_cpu, client_cpu = [], []
    for run in range(RUNS):
        cpu_before, began = cpu_seconds(process.pid), time.process_time()
        tokens, count, streamed_s = stream(f"{shape}-{capacity}-{ahead}-{run}", spec, endpoint, ahead)
        client_cpu.append((time.process_time() - began) / tokens * 1e9)
        server_cpu.append((cpu_seconds(process.pid) - cpu_before) / tokens * 1e9)
        each = tokens // count
        seconds = {
            "stream": streamed_s,
            "tcp": over_tcp(partial(constant, BYTES * each), BYTES * each, count, np.empty(BYTES * each, np.uint8)),
            "tcp, mapped": over_tcp(partial(mapped, path, BYTES * each), BYTES * each, count),
            "tcp, worked": over_tcp(partial(gathering, path, each), sent_bytes(each), count),
            "grpc": over_grpc(sent_bytes(each) * together, count // together + 1),
        }
        for way, taken in seconds.items():
            rates[way].append(BYTES * each * count / taken / 1e9)
    spreads = {way: Spread.of(found) for way, found in rates.items()}
    return {
        "lengths": shape,
        "micro-batch tokens": capacity,
        "credits": ahead,
        **spreads,
        **{f"stream / {way}": spreads["stream"].median / spreads[way].median for way in rates if way != "stream"},
        "server CPU s / 1e9 tokens": Spread.of(server_cpu),
        "client CPU s / 1e9 tokens": Spread.of(client_cpu),
    }


def stream(run, spec, endpoint, ahead=DEFAULT_CREDITS):
    """Consume all epochs; return tokens, micro-batches, seconds."""
    with DataClient(endpoint) as client:
        client.create_run(run, spec)
        attempt = client.begin_attempt(
            run, resume=False, cursor=None, version=None, world_size=1, dp_world_size=1, batch=None, holder="bench"
        )
        count = tokens = 0
        began = time.perf_counter()
        with client.stream(run, attempt, world_rank=0, dp_rank=0, next_step=1, credits=ahead) as steps:
            for step in steps:
                for micro_batch in step:
                    micro_batch.tokens.sum()
                    tokens += len(micro_batch.tokens)
                    count += 1
                steps.ack(step)
        return tokens, count, time.perf_counter() - began


@contextmanager
def serving(directory, store, *, name):
    """A server of its own for `store`, whose ledger and index lie in `directory` under `name`."""
    command = [
        sys.executable, "-m", "dataserver.cli.main", "serve", "--store", f"bench={store}",
        "--listen", "127.0.0.1:0", "--ledger", f"sqlite:///{directory}/{name}.db", "--metrics-listen", "",
        "--index-dir", f"{directory}/{name}-index",
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        for line in process.stdout:
            if found := re.search(r"listening on (\S+:\d+)", line):
                break
        else:
            raise RuntimeError(f"the server ended with {process.wait()}")
        threading.Thread(target=process.stdout.read, daemon=True).start()
        yield found.group(1), process
    finally:
        process.terminate()
        process.wait()


def cpu_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK


if __name__ == "__main__":
    main()
