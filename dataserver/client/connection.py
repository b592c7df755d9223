"""Where the data servers are and how to reach them: endpoints, TLS, token, channels.

A token never travels in the clear to another host: without a CA file, a token is accepted for
loopback endpoints only.
"""

import os
import threading
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Final

import grpc

from dataserver.errors import InvalidConfigError, InvalidRequestError

# The server bounds micro-batches when it is configured, so that a client never has to; 2^31 - 1
# is where protobuf itself ends.
_MAX_MESSAGE_BYTES: Final = 2**31 - 1

# A peer that is gone without a word (power, network, SIGSTOP) is noticed after both together.
_KEEPALIVE_S: Final = 30
_KEEPALIVE_TIMEOUT_S: Final = 10

_CHANNEL_OPTIONS: Final = (
    ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", _MAX_MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", _KEEPALIVE_S * 1000),
    ("grpc.keepalive_timeout_ms", _KEEPALIVE_TIMEOUT_S * 1000),
    ("grpc.http2.ping_timeout_ms", _KEEPALIVE_TIMEOUT_S * 1000),
    ("grpc.http2.max_pings_without_data", 0),
    # Backing off is `failover`'s work; a channel that sulks for two minutes would undo it. The
    # minimum is also the time that one attempt to connect may take.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 5000),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # Two clients of one process share neither connections nor their faults.
    ("grpc.use_local_subchannel_pool", 1),
    # Micro-batches do not go through whatever HTTP proxy the shell's environment names.
    ("grpc.enable_http_proxy", 0),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSettings:
    """Endpoints (`host:port` each), a bearer token or None, and the CA file of TLS or None for plaintext."""

    endpoints: tuple[str, ...]
    token: str | None
    ca: Path | None

    def __post_init__(self) -> None:
        if self.token is None:
            return
        if not self.token or not self.token.isascii() or not self.token.isprintable() or " " in self.token:
            raise InvalidConfigError("the token is empty or holds blanks or characters that no header may hold")
        exposed = [endpoint for endpoint in self.endpoints if not _is_loopback(endpoint)]
        if self.ca is None and exposed:
            raise InvalidConfigError(
                f"a token would travel in the clear to {', '.join(exposed)}: give the CA file of their certificates"
            )

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Headers of every call."""
        return () if self.token is None else (("authorization", f"Bearer {self.token}"),)


def parse_endpoints(text: str) -> tuple[str, ...]:
    """Read `host:port[,host:port…]`; raises `InvalidConfigError` naming the part that is none."""
    endpoints = tuple(part.strip() for part in text.split(","))
    for endpoint in endpoints:
        host, _, port = endpoint.rpartition(":")
        bracketed = host.startswith("[") and host.endswith("]")
        if not host or "/" in host or (":" in host and not bracketed) or not _is_port(port):
            raise InvalidConfigError(f"endpoint {endpoint!r} in {text!r} is not HOST:PORT (or [IPV6]:PORT)")
    if len(set(endpoints)) != len(endpoints):
        raise InvalidConfigError(f"endpoints name a server twice: {text!r}")
    return endpoints


def read_authorities(path: Path) -> bytes:
    """Read the certificates of a CA file; raises `InvalidConfigError` for one that holds none.

    gRPC would take an empty file for the system's own authorities, and go on trying with any other.
    """
    try:
        certificates = path.read_bytes()
    except OSError as error:
        raise InvalidConfigError(f"cannot read the CA file {path}: {error.strerror}") from error
    if b"CERTIFICATE-----" not in certificates:
        raise InvalidConfigError(f"the CA file {path} is no PEM file with a certificate")
    return certificates


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and 1 <= int(text) <= 65535


def _is_loopback(endpoint: str) -> bool:
    host = endpoint.rpartition(":")[0].strip("[]")
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Channels:
    """One gRPC channel per endpoint, opened when first used.

    gRPC does not survive a fork, so a copy in a forked process refuses to work.
    """

    def __init__(self, settings: ConnectionSettings) -> None:
        self.settings = settings
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._channels: dict[str, grpc.Channel] = {}
        self._closed = False

    def channel(self, endpoint: str) -> grpc.Channel:
        """The channel to `endpoint`; raises `InvalidRequestError` after `close` or a fork."""
        self.check_process()
        with self._lock:
            if self._closed:
                raise InvalidRequestError("this client is closed")
            if endpoint not in self._channels:
                self._channels[endpoint] = self._open(endpoint)
            return self._channels[endpoint]

    def check_process(self) -> None:
        """Raise `InvalidRequestError` in a fork of the process that the channels belong to."""
        if os.getpid() != self._process:
            raise InvalidRequestError(
                f"this client was made in process {self._process} and is used in its fork {os.getpid()}: gRPC does not "
                "survive a fork; make a client in each process, or use the start method `spawn`"
            )

    def _open(self, endpoint: str) -> grpc.Channel:
        if self.settings.ca is None:
            return grpc.insecure_channel(endpoint, options=_CHANNEL_OPTIONS)
        credentials = grpc.ssl_channel_credentials(read_authorities(self.settings.ca))
        return grpc.secure_channel(endpoint, credentials, options=_CHANNEL_OPTIONS)

    def close(self) -> None:
        """Close all channels; calls under way end. Idempotent."""
        with self._lock:
            self._closed = True
            channels, self._channels = self._channels, {}
        if os.getpid() == self._process:
            for channel in channels.values():
                channel.close()
