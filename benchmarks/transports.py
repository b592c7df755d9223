"""Raw transports that bring as much as a stream does, for `stream`."""

import mmap
import socket
import time
from itertools import cycle
from multiprocessing import get_context

import grpc
import numpy as np
import uvloop
import xxhash

from dataserver.client.connection import Channels, ConnectionSettings
from dataserver.run_spec import LongRows
from dataserver.stores import open_store
from dataserver.stores.destination import Destination

SEED = 3


def sent_bytes(tokens):
    """What a micro-batch is on the wire, but for some small fields."""
    return 4 * tokens + tokens // 8


def constant(size):
    data = bytes(size)
    return lambda: data


def mapped(path, size):
    """Return a maker of messages that are the store's mapped file, from one end to the other."""
    (file,) = path.glob("*.arrow")
    with file.open("rb") as opened:
        whole = memoryview(mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ))
    begins = cycle(range(0, len(whole) - size, size))

    def make():
        begin = next(begins)
        return whole[begin : begin + size]

    return make


def gathering(path, tokens_wanted):
    """Return a maker of messages that copies random rows of the store and hashes them, as the server must."""
    view = open_store(path).view(2**20, LongRows.TRUNCATE)
    random = np.random.default_rng(SEED)
    size = sent_bytes(tokens_wanted)

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


def send_over_tcp(address, maker, count):
    make = maker()
    # What it calls is compiled or loaded before anybody counts.
    make()
    with socket.create_connection(address) as connection:
        for _ in range(count):
            connection.sendall(make())


def over_tcp(maker, size, count, room=None):
    """Seconds to receive `count` messages of `size` bytes from another process, into `room` or an array each."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sender = get_context("spawn").Process(
            target=send_over_tcp, args=(listener.getsockname(), maker, count), daemon=True
        )
        sender.start()
        connection, _ = listener.accept()
        began = time.perf_counter()
        with connection:
            for _ in range(count):
                data = np.empty(size, np.uint8) if room is None else room
                received = 0
                while received < size:
                    received += connection.recv_into(data.data[received:])
                data[: size // 4 * 4].view(np.uint32).sum()
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
