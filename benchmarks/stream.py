"""One server to one client, from the mapped store to numpy views, beside raw TCP in the same run.

    tcp        a socket that sends one constant buffer of the same size over and over
    tcp+work   a socket whose sender gathers and hashes the same micro-batches: what any transport pays
    grpc       grpc.aio sends one constant message, as large as the stream's, over and over to a channel as our client's
    stream     `dataserver serve` and `dataserver.client`: plan, gather, checksum, gRPC, checksum, views

The four run interleaved. The client reads every token once (a sum), so that views are not free. A stream is several
epochs, some thirty steps, from its open to its end: what a first step waits for, its plan above all, is counted, but
is less of the time than of the eight steps of one epoch.
CPU seconds are those of the whole server process and of the whole client, per 10^9 tokens.
"""

import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

import grpc
import numpy as np
import uvloop
import xxhash

from benchmarks.report import Spread, report
from dataserver.client import DataClient
from dataserver.client.client import DEFAULT_CREDITS
from dataserver.client.connection import Channels, ConnectionSettings
from dataserver.run_spec import BatchSpec, LongRows, OrderSpec, RunSpec, Source
from dataserver.stores import open_store
from dataserver.stores.destination import Destination
from dataserver.streaming.encodings import TOGETHER_BYTES
from dataserver.streaming.message_size import largest_message_bytes
from dataserver.testing import write_store

SAMPLES, EPOCHS, RUNS, SEED = 120_000, 4, 5, 3
SHAPES = {"chat": (330, 1.0, 4096), "reasoning": (5000, 0.85, 32768)}
# Tokens of a micro-batch, and how many of them a client lets come ahead: small ones cost little memory, and share
# messages by halves of that.
MICRO_BATCHES = ((2**15, DEFAULT_CREDITS), (2**15, 4 * DEFAULT_CREDITS), (2**19, DEFAULT_CREDITS))
STEP_TOKENS = 2**23
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
    rates = {"tcp": [], "tcp+work": [], "grpc": [], "stream": []}
    largest = largest_message_bytes(spec.batch, 4)
    server_cpu, client_cpu = [], []
    for run in range(RUNS):
        cpu_before, began = cpu_seconds(process.pid), time.process_time()
        size, count, tokens, seconds = stream(f"{shape}-{capacity}-{ahead}-{run}", spec, endpoint, ahead)
        client_cpu.append((time.process_time() - began) / tokens * 1e9)
        server_cpu.append((cpu_seconds(process.pid) - cpu_before) / tokens * 1e9)
        total = size * count
        rates["stream"].append(total / seconds / 1e9)
        rates["tcp"].append(total / over_tcp(size, count, None) / 1e9)
        rates["tcp+work"].append(total / over_tcp(size, count, path) / 1e9)
        together = min(max(1, TOGETHER_BYTES // largest), ahead // 2)
        rates["grpc"].append(total / over_grpc(size * together, count // together + 1) / 1e9)
    stream_rate = Spread.of(rates["stream"])
    return {
        "lengths": shape,
        "micro-batch tokens": capacity,
        "credits": ahead,
        "tcp": Spread.of(rates["tcp"]),
        "tcp+work": Spread.of(rates["tcp+work"]),
        "grpc": Spread.of(rates["grpc"]),
        "stream": stream_rate,
        "grpc / tcp": Spread.of(rates["grpc"]).median / Spread.of(rates["tcp"]).median,
        "stream / tcp": stream_rate.median / Spread.of(rates["tcp"]).median,
        "stream / grpc": stream_rate.median / Spread.of(rates["grpc"]).median,
        "stream / tcp+work": stream_rate.median / Spread.of(rates["tcp+work"]).median,
        "server CPU s / 1e9 tokens": Spread.of(server_cpu),
        "client CPU s / 1e9 tokens": Spread.of(client_cpu),
    }


def stream(run, spec, endpoint, ahead=DEFAULT_CREDITS):
    """Consume all epochs; return mean payload bytes, micro-batches, tokens, seconds."""
    with DataClient(endpoint) as client:
        client.create_run(run, spec)
        attempt = client.begin_attempt(
            run, resume=False, cursor=None, version=None, world_size=1, dp_world_size=1, batch=None, holder="bench"
        )
        payload = count = tokens = 0
        began = time.perf_counter()
        with client.stream(run, attempt, world_rank=0, dp_rank=0, next_step=1, credits=ahead) as steps:
            for step in steps:
                for micro_batch in step:
                    micro_batch.tokens.sum()
                    payload += micro_batch.tokens.nbytes + len(micro_batch.tokens) // 8
                    tokens += len(micro_batch.tokens)
                    count += 1
                steps.ack(step)
        return payload // count, count, tokens, time.perf_counter() - began


def constant(size):
    data = bytes(size)
    return lambda: data


def gathering(path, size):
    """Return a maker of messages that copies random rows of the store and hashes them, as the server must."""
    view = open_store(path).view(2**20, LongRows.TRUNCATE)
    random = np.random.default_rng(SEED)
    tokens_wanted = size * 8 // 33

    def make():
        rows = random.integers(0, view.rows, 4 + 2 * tokens_wanted // 300)
        ends = np.cumsum(view.lengths(rows))
        rows = rows[: max(1, int(np.searchsorted(ends, tokens_wanted)))]
        lengths = view.lengths(rows)
        room = Destination.end_to_end(lengths, token_bytes=4, mask=True)
        view.read(rows, lengths, room)
        data = np.packbits(room.loss_mask).tobytes() + room.tokens.tobytes()
        xxhash.xxh3_64_intdigest(data)
        return data.ljust(size, b"\0")[:size]

    return make


def send_over_tcp(address, size, count, store):
    make = constant(size) if store is None else gathering(store, size)
    # What it calls is compiled or loaded before anybody counts.
    make()
    with socket.create_connection(address) as connection:
        for _ in range(count):
            connection.sendall(make())


def over_tcp(size, count, store):
    """Seconds to receive `count` messages of `size` bytes from another process and sum them."""
    buffer = bytearray(size)
    view = memoryview(buffer)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sender = get_context("spawn").Process(
            target=send_over_tcp, args=(listener.getsockname(), size, count, store), daemon=True
        )
        sender.start()
        connection, _ = listener.accept()
        began = time.perf_counter()
        with connection:
            for _ in range(count):
                received = 0
                while received < size:
                    received += connection.recv_into(view[received:])
                np.frombuffer(buffer, dtype=np.uint32, count=size // 4).sum()
        seconds = time.perf_counter() - began
    sender.join()
    return seconds


def serve_constant(size, count, ports):
    async def serve():
        server = grpc.aio.server(options=[("grpc.max_send_message_length", -1)])

        async def send(_request, call):
            data = bytes(size)
            for _ in range(count):
                await call.write(data)

        handler = grpc.unary_stream_rpc_method_handler(send, None, None)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("constant", {"Send": handler}),))
        ports.put(server.add_insecure_port("127.0.0.1:0"))
        await server.start()
        await server.wait_for_termination()

    uvloop.run(serve())


def over_grpc(size, count):
    """Seconds to receive `count` messages of `size` bytes from another process and sum them."""
    context = get_context("spawn")
    ports = context.Queue()
    sender = context.Process(target=serve_constant, args=(size, count, ports), daemon=True)
    sender.start()
    endpoint = f"127.0.0.1:{ports.get()}"
    channels = Channels(ConnectionSettings(endpoints=(endpoint,), token=None, ca=None))
    messages = channels.channel(endpoint).unary_stream("/constant/Send", None, None)(b"", wait_for_ready=True)
    began = time.perf_counter()
    for data in messages:
        np.frombuffer(data, dtype=np.uint32, count=size // 4).sum()
    seconds = time.perf_counter() - began
    channels.close()
    sender.terminate()
    sender.join()
    return seconds


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
