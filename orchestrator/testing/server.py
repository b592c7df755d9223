"""A fake engine behind HTTP, in threads of this process."""

import json
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from dataserver.weight_buckets import TensorSpec
from orchestrator.receivers.bucket import ReceiveError
from orchestrator.testing.events import Events
from orchestrator.testing.fake_engine import FakeEngine, RefusedError
from orchestrator.testing.fake_tokens import Reply
from orchestrator.testing.faults import FakeFaultError
from orchestrator.testing.routes import Routes


class FakeServer(ThreadingHTTPServer):
    """Answers at 127.0.0.1:`port`, 0 for a free one."""

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True

    def __init__(self, port: int, engine: FakeEngine, reply: Reply | None) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.routes = Routes(engine, reply)
        self._connections: set[socket.socket] = set()

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.server_port}"

    def get_request(self) -> tuple[socket.socket, Any]:
        """Takes a connection, and keeps it in mind: whoever dies cuts all."""
        connection, address = super().get_request()
        self._connections.add(connection)
        return connection, address

    def shutdown_request(self, request: Any) -> None:  # noqa: ANN401
        """Ends a connection."""
        self._connections.discard(request)
        super().shutdown_request(request)

    def cut(self) -> None:
        """Ends all connections without an answer, and listens no more."""
        self.socket.close()
        for connection in list(self._connections):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue


class _Handler(BaseHTTPRequestHandler):
    server: FakeServer
    protocol_version = "HTTP/1.1"
    # Two small writes an answer: without this the second waits for an acknowledgement, 40 ms.
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        self._answer("GET")

    def do_POST(self) -> None:
        self._answer("POST")

    def log_message(self, *_arguments: object) -> None:
        """Silent: what matters is in the events."""

    def _answer(self, method: str) -> None:
        length = int(self.headers.get("content-length", 0))
        body = json.loads(self.rfile.read(length) or b"{}")
        parts = urlsplit(self.path)
        status, answer = self._call(f"{method} {parts.path}", parse_qs(parts.query), body)
        data = json.dumps(answer).encode()
        try:
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
        except OSError:
            self.close_connection = True  # the caller has gone

    def _call(self, route: str, query: dict[str, list[str]], body: dict[str, Any]) -> tuple[int, Any]:
        try:
            return 200, self.server.routes.answer(route, query, body)
        except KeyError as error:
            return 404, _fault(f"no such path or field: {error}")
        except (RefusedError, FakeFaultError, ReceiveError, ValueError) as error:
            return 500, _fault(str(error))


def _fault(message: str) -> dict[str, Any]:
    return {"error": {"message": message}}


class RunningFakeEngine:
    """A fake engine in threads. `engine` is another one after a restart; `url` stays."""

    def __init__(self, tensors: Sequence[TensorSpec] | None, workers: int, token_s: float, reply: Reply | None) -> None:
        self._tensors, self._workers, self._token_s, self._reply = tensors, workers, token_s, reply
        self._events = Events()
        self._port = 0
        self._ending = threading.Lock()
        self._thread: threading.Thread | None = None
        self.restart()

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self._port}"

    def restart(self) -> None:
        """Ends it, whatever it does, and starts it with its first weights on the same port."""
        self.kill()
        self.engine = FakeEngine(
            die=self.kill, events=self._events, tensors=self._tensors, workers=self._workers, token_s=self._token_s
        )
        self._server = FakeServer(self._port, self.engine, self._reply)
        self._port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def kill(self) -> None:
        """Ends it without an answer to anybody; may be repeated."""
        with self._ending:
            if self._thread is None:
                return
            self._server.shutdown()
            self._thread.join()
            self._thread = None
            self._server.cut()
            self.engine.end()


@contextmanager
def running_fake_engine(
    *,
    tensors: Sequence[TensorSpec] | None = None,
    workers: int = 1,
    token_s: float = 0.0,
    reply: Reply | None = None,
) -> Iterator[RunningFakeEngine]:
    """A fake engine on a free port. `token_s`: seconds a token takes."""
    running = RunningFakeEngine(tensors, workers, token_s, reply)
    try:
        yield running
    finally:
        running.kill()
