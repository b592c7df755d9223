"""`hf://` against a small Hub on loopback that speaks the calls which the Hub's own library makes.

It shows that we use the library as it is; whether the real Hub answers like this, nobody has tried from here.
"""

import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from dataserver.errors import InvalidConfigError, StoreDamagedError, StoreNotFoundError, UnavailableError
from dataserver.storage import ReadPolicy, Storage, find_objects, open_storage

REPOSITORY = "/datasets/team/chats"
FIRST, SECOND = "a" * 40, "b" * 40
BIG = bytes(range(256)) * 8192
COMMITS = {
    FIRST: {"README.md": b"hello", "data/part-0.parquet": BIG, "data/deep/x y.parquet": b"12345"},
    SECOND: {"README.md": b"hello", "data/part-0.parquet": BIG[::-1], "data/deep/x y.parquet": b"12345"},
}


def git_hash(data: bytes) -> str:
    return hashlib.sha1(data, usedforsecurity=False).hexdigest()


def file_of(path: str, data: bytes) -> dict[str, object]:
    entry = {
        "type": "file",
        "path": path,
        "size": len(data),
        "oid": hashlib.sha1(data, usedforsecurity=False).hexdigest(),
    }
    if len(data) > 1000:
        entry["lfs"] = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}
    return entry


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "Hub"

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        if path in {f"/api{REPOSITORY}", f"/api{REPOSITORY}/revision/v2"}:
            self.json({"id": "team/chats", "sha": self.server.head})
        elif path.startswith(f"/api{REPOSITORY}/tree/"):
            commit, _, folder = path.removeprefix(f"/api{REPOSITORY}/tree/").partition("/")
            files = [file_of(name, data) for name, data in COMMITS[commit].items() if name.startswith(folder)]
            if files:
                self.json([{"type": "directory", "path": "data", "oid": "0" * 40, "size": 0}, *files])
            else:
                self.answer(404, b"{}", {"X-Error-Code": "EntryNotFound"})
        elif path.startswith(f"{REPOSITORY}/resolve/"):
            commit, _, name = path.removeprefix(f"{REPOSITORY}/resolve/").partition("/")
            begin, end = (int(part) for part in self.headers["Range"].removeprefix("bytes=").split("-"))
            self.server.asked.append((commit, begin, end + 1))
            status = self.server.script.pop(0) if self.server.script else 206
            self.answer(status, COMMITS[commit][name][begin : end + 1] if status == 206 else b"")
        else:
            self.answer(401, b"{}", {"X-Error-Code": "RepoNotFound"})

    def do_POST(self) -> None:
        commit = self.path.rpartition("/")[2]
        wanted = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())["paths"]
        self.json([file_of(path, COMMITS[commit][path]) for path in wanted if path in COMMITS[commit]])

    def json(self, content: object) -> None:
        self.answer(200, json.dumps(content).encode(), {"Content-Type": "application/json"})

    def answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class Hub(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.head = FIRST
        self.script: list[int] = []
        self.asked: list[tuple[str, int, int]] = []

    @property
    def options(self) -> dict[str, str]:
        return {"endpoint": f"http://127.0.0.1:{self.server_port}"}

    def storage(self, url: str = "hf://datasets/team/chats/data") -> Storage:
        return open_storage(url, self.options, policy=ReadPolicy(tries=3, backoff_s=1e-3))


@pytest.fixture
def hub() -> Iterator[Hub]:
    server = Hub()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def test_files_below_the_prefix_are_listed_with_the_hash_of_their_content(hub) -> None:
    assert [(info.path, info.size, info.version) for info in hub.storage().list()] == [
        ("deep/x y.parquet", 5, git_hash(b"12345")),
        ("part-0.parquet", len(BIG), hashlib.sha256(BIG).hexdigest()),
    ]
    assert len(hub.storage("hf://datasets/team/chats@v2").list()) == 3


def test_ranges_are_exact_and_one_request_each(hub) -> None:
    storage = hub.storage()
    assert storage.read(storage.stat("part-0.parquet"), 1000, 2_000_001) == BIG[1000:2_000_001]
    assert hub.asked == [(FIRST, 1000, 2_000_001)]


def test_what_is_read_belongs_to_the_commit_that_was_listed(hub) -> None:
    storage = hub.storage()
    (_, info) = storage.list()
    hub.head = SECOND
    assert storage.read(info, 0, 100) == BIG[:100]
    later = hub.storage()
    assert later.read(later.stat("part-0.parquet"), 0, 100) == BIG[::-1][:100]
    with pytest.raises(StoreDamagedError, match=r"part-0\.parquet' changed"):
        later.read(info, 0, 100)


def test_a_busy_hub_is_asked_again(hub) -> None:
    hub.script = [503, 429]
    storage = hub.storage()
    assert storage.read(storage.stat("part-0.parquet"), 0, 100) == BIG[:100]
    assert len(hub.asked) == 3


def test_a_single_file_is_found_and_nothing_is_not(hub) -> None:
    _, infos = find_objects("hf://datasets/team/chats/data/part-0.parquet", hub.options)
    assert [info.path for info in infos] == ["part-0.parquet"]
    with pytest.raises(StoreNotFoundError, match="nothing at"):
        find_objects("hf://datasets/team/chats/nothing", hub.options)


def test_a_repository_that_may_not_be_seen_is_told(hub) -> None:
    with pytest.raises(UnavailableError, match="no such repository, or a private one"):
        hub.storage("hf://datasets/team/secret").list()


def test_a_url_without_a_repository_is_refused(hub) -> None:
    with pytest.raises(InvalidConfigError, match="names no repository"):
        hub.storage("hf://datasets/team")
