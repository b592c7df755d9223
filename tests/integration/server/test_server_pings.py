"""Pings: a client that waits for hours may ask as often as it likes whether the server is still there.

gRPC's own rule is two pings per five minutes without data, and then GOAWAY with too_many_pings. The frames are written
by hand, because gRPC's client sends one ping a second at most and a test would have to wait for it.
"""

import socket
import struct

from dataserver.testing import RunningServer

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS, PING, GOAWAY = 4, 6, 7
ACK = 1
PINGS = 200


def frame(kind: int, flags: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + bytes(4) + payload


def read_frame(connection: socket.socket) -> tuple[int, int, bytes]:
    header = read_exactly(connection, 9)
    return header[3], header[4], read_exactly(connection, int.from_bytes(header[:3], "big"))


def read_exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        assert more, "the server hung up"
        data += more
    return data


def test_many_pings_without_data_do_not_end_the_connection(server: RunningServer) -> None:
    host, port = server.endpoint.split(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(PREFACE + frame(SETTINGS, 0, b"") + frame(SETTINGS, ACK, b""))
        answered = 0
        for number in range(PINGS):
            connection.sendall(frame(PING, 0, number.to_bytes(8, "big")))
            while answered <= number:
                kind, flags, payload = read_frame(connection)
                assert kind != GOAWAY, payload[8:]
                if kind == PING and flags & ACK:
                    assert int.from_bytes(payload, "big") == answered
                    answered += 1
    assert answered == PINGS
