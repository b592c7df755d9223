"""`/metrics` for Prometheus, in a thread of its own."""

from collections.abc import Callable
from contextlib import suppress
from typing import Final
from wsgiref.simple_server import WSGIRequestHandler

from prometheus_client import CollectorRegistry, start_http_server

from dataserver.errors import InvalidConfigError
from dataserver.listening import split_address

SILENCE_S: Final = 30.0
"""How long a connection may say nothing: each costs the server a thread and an open file."""


class MetricsEndpoint:
    """Serves a registry until it is closed."""

    def __init__(self, address: str, registry: CollectorRegistry) -> None:
        self._address = address
        self._registry = registry
        self._close: Callable[[], None] = _nothing

    def start(self) -> int:
        """Listen; return the port. Raises `InvalidConfigError` when the address is taken."""
        host, port = split_address(self._address)
        try:
            server, thread = start_http_server(port, host, self._registry)
        except OSError as error:
            raise InvalidConfigError(
                f"metrics_listen = {self._address!r}: {error.strerror}; choose another address, or '' for none"
            ) from error
        server.RequestHandlerClass = Impatient

        def close() -> None:
            server.shutdown()
            server.server_close()
            thread.join()

        self._close = close
        return server.server_port

    def close(self) -> None:
        """Idempotent."""
        self._close()
        self._close = _nothing


class Impatient(WSGIRequestHandler):
    """One connection: hung up on when it is silent, and never a word in the log."""

    timeout = SILENCE_S

    def handle(self) -> None:
        """Answer one request, unless whoever connected is silent or gone."""
        with suppress(TimeoutError, ConnectionError):
            super().handle()

    def log_message(self, *_arguments: object) -> None:
        """Log nothing."""


def _nothing() -> None:
    """There is nothing to close."""
