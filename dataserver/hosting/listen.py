"""gRPC's options of a server, and its port."""

import grpc

from dataserver.errors import InvalidConfigError
from dataserver.listening import join_address, split_address

# Requests are small; the largest carries a run spec with its sources.
LARGEST_REQUEST_BYTES = 2**20

# Clients that ping more often than this are tolerated too: a stalled rank is no reason to hang up on it.
LEAST_PING_INTERVAL_MS = 1000


def server_options(
    *,
    max_message_bytes: int,
    keepalive_s: float,
    keepalive_timeout_s: float,
    largest_request_bytes: int = LARGEST_REQUEST_BYTES,
    reuse_port: bool = False,
) -> list[tuple[str, int]]:
    """Options for `grpc.aio.server`; `max_message_bytes` bounds what it sends."""
    return [
        ("grpc.max_send_message_length", max_message_bytes),
        ("grpc.max_receive_message_length", largest_request_bytes),
        ("grpc.so_reuseport", int(reuse_port)),
        ("grpc.enable_channelz", 1),
        ("grpc.keepalive_time_ms", round(keepalive_s * 1000)),
        ("grpc.keepalive_timeout_ms", round(keepalive_timeout_s * 1000)),
        # A limit of its own in gRPC, 60 s by default, that the one above does not lower.
        ("grpc.http2.ping_timeout_ms", round(keepalive_timeout_s * 1000)),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.min_ping_interval_without_data_ms", LEAST_PING_INTERVAL_MS),
        ("grpc.http2.max_ping_strikes", 0),
    ]


def bind(server: grpc.aio.Server, listen: str, credentials: grpc.ServerCredentials | None) -> int:
    """Listen; return the port. Raises `InvalidConfigError` when the address cannot be had."""
    address = join_address(*split_address(listen))
    try:
        if credentials is None:
            return server.add_insecure_port(address)
        return server.add_secure_port(address, credentials)
    except RuntimeError as error:
        raise InvalidConfigError(
            f"cannot listen on {listen}: the address is taken, or is not this machine's"
        ) from error
