"""Synchronous or asynchronous server: the same stream, credits and constant message, three servers.

    sync         grpc.server, a thread per stream, which waits for credits on a semaphore
    aio          grpc.aio on asyncio's own loop
    aio-uvloop   grpc.aio on uvloop

Interleaved, one server process each, one client process. `relative` compares medians with `sync` of the same row group.
`unary ms` is the time of a small call while 64 streams wait for credits; the synchronous server has a thread for
each of them and 8 more. `threads` are those of the server process then.
"""

import asyncio
import contextlib
import itertools
import os
import statistics
import threading
import time
from concurrent import futures
from multiprocessing import get_context
from pathlib import Path

import grpc
import uvloop

from benchmarks.report import Spread, report

FLAVOURS = ("sync", "aio", "aio-uvloop")
SIZES = (2**17, 2**20)
STREAMS = (1, 8)
REPEATS, SECONDS = 3, 0.8
WINDOW = 8
STALLED, SPARE_THREADS = 64, 8
METHOD = "/bench.Stream/Messages"
ECHO = "/bench.Stream/Echo"
OPTIONS = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
TICK = os.sysconf("SC_CLK_TCK")


def main():
    context = get_context("spawn")
    servers = {}
    for flavour in FLAVOURS:
        ours, theirs = context.Pipe()
        process = context.Process(target=serve, args=(flavour, theirs), daemon=True)
        process.start()
        servers[flavour] = (process, ours.recv())
    try:
        rows = throughput(servers)
        stalled = [{"flavour": flavour} | stall(*servers[flavour]) for flavour in FLAVOURS]
    finally:
        for process, _ in servers.values():
            process.terminate()
            process.join()
    report("server_flavour", "Streams: synchronous and asynchronous server", rows, ["median (range) of repeats"])
    report("server_flavour_stalled", f"A small call while {STALLED} streams wait for credits", stalled)


def throughput(servers):
    rows = []
    for size, streams in itertools.product(SIZES, STREAMS):
        rates = {flavour: [] for flavour in FLAVOURS}
        costs = {flavour: [] for flavour in FLAVOURS}
        for _ in range(REPEATS):
            for flavour in FLAVOURS:
                process, port = servers[flavour]
                before = cpu_seconds(process.pid)
                moved, seconds = pull(port, size, streams)
                rates[flavour].append(moved / seconds / 1e9)
                costs[flavour].append((cpu_seconds(process.pid) - before) / (moved / 1e9))
        base = statistics.median(rates["sync"])
        rows += [
            {
                "KiB": size // 1024,
                "streams": streams,
                "flavour": flavour,
                "GB/s": Spread.of(rates[flavour]),
                "relative": statistics.median(rates[flavour]) / base,
                "server CPU s/GB": Spread.of(costs[flavour]),
            }
            for flavour in FLAVOURS
        ]
    return rows


def pull(port, size, streams):
    """Bytes received by `streams` streams on one channel, and the seconds that it took."""
    moved = [0] * streams
    deadline = time.perf_counter() + SECONDS
    with grpc.insecure_channel(f"127.0.0.1:{port}", OPTIONS) as channel:

        def read(index):
            granted = threading.Semaphore(WINDOW)
            ended = threading.Event()

            def requests():
                yield size.to_bytes(4, "little") + WINDOW.to_bytes(4, "little")
                while not ended.is_set():
                    for _ in range(WINDOW // 2):
                        granted.acquire()
                    yield (WINDOW // 2).to_bytes(4, "little")

            for _ in range(WINDOW):
                granted.acquire()
            call = channel.stream_stream(METHOD)(requests())
            for message in call:
                moved[index] += len(message)
                granted.release()
                if time.perf_counter() > deadline:
                    ended.set()
                    call.cancel()
                    break
            granted.release(WINDOW)

        threads = [threading.Thread(target=read, args=(index,)) for index in range(streams)]
        begun = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(moved), time.perf_counter() - begun


def stall(process, port):
    """Milliseconds of small calls while streams wait for credits that never come."""
    with grpc.insecure_channel(f"127.0.0.1:{port}", OPTIONS) as channel:
        never = threading.Event()

        def open_only():
            yield (1024).to_bytes(4, "little") + (1).to_bytes(4, "little")
            never.wait()

        calls = [channel.stream_stream(METHOD)(open_only()) for _ in range(STALLED)]
        for call in calls:
            next(call)
        echo = channel.unary_unary(ECHO)
        times = []
        for _ in range(200):
            begun = time.perf_counter()
            echo(b"x", timeout=30)
            times.append((time.perf_counter() - begun) * 1000)
        threads = sum(1 for _ in Path(f"/proc/{process.pid}/task").iterdir())
        for call in calls:
            call.cancel()
        never.set()
    times.sort()
    return {"unary ms": statistics.median(times), "p99 ms": times[-3], "threads": threads}


def cpu_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def serve(flavour, pipe):
    if flavour == "sync":
        serve_sync(pipe)
    else:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop if flavour == "aio-uvloop" else None) as runner:
            runner.run(serve_aio(pipe))


def handlers(messages, echo):
    methods = {
        "Messages": grpc.stream_stream_rpc_method_handler(messages),
        "Echo": grpc.unary_unary_rpc_method_handler(echo),
    }
    return (grpc.method_handlers_generic_handler("bench.Stream", methods),)


def serve_sync(pipe):
    def messages(requests, context):
        first = next(requests)
        message = bytes(int.from_bytes(first[:4], "little"))
        granted = threading.Semaphore(int.from_bytes(first[4:], "little"))
        gone = threading.Event()

        def end():
            gone.set()
            granted.release()

        # Without this a handler that waits outlives its client, and its thread with it.
        context.add_callback(end)

        def grant():
            with contextlib.suppress(grpc.RpcError):
                for request in requests:
                    granted.release(int.from_bytes(request, "little"))

        threading.Thread(target=grant, daemon=True).start()
        while granted.acquire() and not gone.is_set():
            yield message

    server = grpc.server(futures.ThreadPoolExecutor(STALLED + SPARE_THREADS), options=OPTIONS)
    server.add_generic_rpc_handlers(handlers(messages, lambda request, _: request))
    pipe.send(server.add_insecure_port("127.0.0.1:0"))
    server.start()
    server.wait_for_termination()


async def serve_aio(pipe):
    async def messages(_, call):
        first = await call.read()
        message = bytes(int.from_bytes(first[:4], "little"))
        granted = asyncio.Semaphore(int.from_bytes(first[4:], "little"))

        async def grant():
            while (request := await call.read()) is not grpc.aio.EOF:
                for _ in range(int.from_bytes(request, "little")):
                    granted.release()

        granting = asyncio.ensure_future(grant())
        try:
            while await granted.acquire():
                await call.write(message)
        finally:
            granting.cancel()

    async def echo(request, _):
        return request

    server = grpc.aio.server(options=OPTIONS)
    server.add_generic_rpc_handlers(handlers(messages, echo))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    pipe.send(port)
    await server.wait_for_termination()


if __name__ == "__main__":
    main()
