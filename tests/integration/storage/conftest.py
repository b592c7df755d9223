"""An S3 server that fails as it is told to: one object, a script of faults, and a log of what was asked."""

import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from dataserver.storage import ReadPolicy, Storage, open_storage

sys.path.insert(0, str(Path(__file__).parent))

DATA = bytes(range(256)) * 4096 * 4
ETAG = '"0123456789abcdef"'


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "FaultyS3"

    def do_HEAD(self) -> None:
        self.answer(200, b"", len(DATA), {"ETag": self.server.etag})

    def do_GET(self) -> None:
        begin, end = 0, len(DATA)
        asked = self.headers.get("Range")
        if asked is not None:
            first, last = asked.removeprefix("bytes=").split("-")
            begin, end = int(first), int(last) + 1
        with self.server.lock:
            self.server.asked.append((begin, end))
            self.server.keys.append(self.headers.get("Authorization", "").partition("Credential=")[2].split("/")[0])
            fault = self.server.script.pop(0) if self.server.script else self.server.whole
        fault(self, begin, end)

    def do_PUT(self) -> None:
        count = int(self.headers["Content-Length"])
        self.rfile.read(count)
        with self.server.lock:
            fault = self.server.script.pop(0) if self.server.script else self.server.taken
        fault(self, 0, count)

    def ranged(self, begin: int, end: int, sent: bytes, promised: int | None = None) -> None:
        headers = {"Content-Range": f"bytes {begin}-{end - 1}/{len(DATA)}", "ETag": self.server.etag}
        self.answer(206, sent, end - begin if promised is None else promised, headers)

    def answer(self, status: int, sent: bytes, promised: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(promised))
        self.send_header("Last-Modified", "Mon, 02 Nov 2026 00:00:00 GMT")
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(sent)
        self.wfile.flush()
        if len(sent) < promised and self.command == "GET":
            self.close_connection = True

    def error(self, status: int, code: str) -> None:
        body = f"<Error><Code>{code}</Code><Message>in a test</Message></Error>".encode()
        self.answer(status, body, len(body), {"Content-Type": "application/xml"})

    def log_message(self, *_: object) -> None:
        pass


Fault = Callable[[Handler, int, int], None]


class FaultyS3(ThreadingHTTPServer):
    """Answers each GET by the next entry of `script`, and whole when there is none left."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.lock = threading.Lock()
        self.etag = ETAG
        self.script: list[Fault] = []
        self.asked: list[tuple[int, int]] = []
        self.keys: list[str] = []
        self.released = threading.Event()

    def handle_error(self, *_: object) -> None:
        """Clients that give up are expected."""

    def storage(self, policy: ReadPolicy | None = None) -> Storage:
        options = {"endpoint": f"http://127.0.0.1:{self.server_port}", "region": "us-east-1"}
        return open_storage("s3://bucket/chat", options, policy=policy or ReadPolicy(backoff_s=1e-3, tries=4))

    @staticmethod
    def whole(handler: Handler, begin: int, end: int) -> None:
        handler.ranged(begin, end, DATA[begin:end])

    @staticmethod
    def taken(handler: Handler, _begin: int, _end: int) -> None:
        """What was put is there, for all the client knows."""
        handler.answer(200, b"", 0, {"ETag": ETAG})

    @staticmethod
    def reset_after(count: int) -> Fault:
        """A connection reset once `count` bytes are on their way."""

        def fault(handler: Handler, begin: int, end: int) -> None:
            handler.ranged(begin, end, DATA[begin : begin + count])
            handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            handler.connection.close()

        return fault

    @staticmethod
    def cut_after(count: int) -> Fault:
        """The connection ends in order, `count` bytes into a body that promised more."""
        return lambda handler, begin, end: handler.ranged(begin, end, DATA[begin : begin + count])

    @staticmethod
    def short_by(count: int) -> Fault:
        """A well-formed answer of fewer bytes than were asked for."""
        return lambda handler, begin, end: handler.ranged(begin, end - count, DATA[begin : end - count])

    def stall_after(self, count: int) -> Fault:
        """Silence after `count` bytes, until the test is over."""

        def fault(handler: Handler, begin: int, end: int) -> None:
            handler.ranged(begin, end, DATA[begin : begin + count])
            self.released.wait()

        return fault

    def ignores_condition(self, etag: str) -> Fault:
        """Another version's bytes, by a server that does not know If-Match."""

        def fault(handler: Handler, begin: int, end: int) -> None:
            self.etag = etag
            handler.ranged(begin, end, DATA[begin:end])

        return fault

    @staticmethod
    def refuse(status: int, code: str) -> Fault:
        return lambda handler, begin, end: handler.error(status, code)


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyS3]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKFIRST")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    server = FaultyS3()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.released.set()
        with suppress(OSError):
            server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture(scope="session")
def gcs():
    """A fake of Google's storage."""
    from emulatorlab.servers import running_gcs

    with running_gcs() as server:
        yield server


@pytest.fixture(scope="session")
def azurite():
    """A fake of Azure's storage, where it is installed."""
    from emulatorlab.servers import azurite_program, running_azurite

    program = azurite_program()
    if program is None:
        pytest.skip("azurite-blob is not on PATH (npm install -g azurite)")
    with running_azurite(program) as server:
        yield server
