"""What holds for every kind of storage: files, memory, a real S3 server, and fakes of Google's and Azure's."""

import os
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fsspec
import pytest
from emulatorlab.servers import BUCKET

from benchmarks.s3_server import S3Server
from dataserver.errors import InternalError, InvalidConfigError, StoreDamagedError, StoreNotFoundError
from dataserver.storage import ObjectInfo, Storage, find_objects, is_url, open_storage, open_writable

FILES = {"b.arrow": b"bb", "a/2.parquet": b"22222", "a/10.parquet": b"", "c c/ü%20#?.jsonl": b"x" * 1000}


class Place:
    """A URL with its options, and what puts bytes below it."""

    def __init__(self, url: str, put: Callable[[str, bytes], object], options: dict[str, str]) -> None:
        self.url, self.put, self.options = url, put, options

    def storage(self, below: str = "") -> Storage:
        return open_storage(self.url + below, self.options)

    def find(self, below: str) -> tuple[Storage, list[ObjectInfo]]:
        return find_objects(self.url + below, self.options)


def files(root: Path) -> Place:
    def put(path: str, data: bytes) -> None:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)

    return Place(f"file://{root}", put, {})


@pytest.fixture(params=["file", "memory", "s3", "gs", "az"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    root = uuid.uuid4().hex
    if request.param in {"gs", "az"}:
        server = request.getfixturevalue({"gs": "gcs", "az": "azurite"}[request.param])
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        url = f"{request.param}://{BUCKET}/{root}"
        return Place(url, lambda path, data: server.put(f"{root}/{path}", data), server.options)
    if request.param == "file":
        return files(tmp_path)
    if request.param == "memory":
        return Place(
            f"memory://{root}", lambda path, data: fsspec.filesystem("memory").pipe(f"/{root}/{path}", data), {}
        )
    s3 = request.getfixturevalue("s3")
    return Place(f"s3://kinds/{root}", lambda path, data: s3.put("kinds", f"{root}/{path}", data), s3.options)


@pytest.fixture
def storage(place: Place) -> Storage:
    for path, data in FILES.items():
        place.put(path, data)
    return place.storage()


def test_everything_below_the_url_is_listed_sorted(storage) -> None:
    assert [(info.path, info.size) for info in storage.list()] == [
        ("a/10.parquet", 0),
        ("a/2.parquet", 5),
        ("b.arrow", 2),
        ("c c/ü%20#?.jsonl", 1000),
    ]


def test_what_stat_tells_is_what_is_listed(storage) -> None:
    assert [storage.stat(info.path) for info in storage.list()] == storage.list()


def test_many_reads_at_once_get_their_own_bytes(place) -> None:
    data = os.urandom(3_000_000)
    place.put("big.parquet", data)
    storage = place.storage()
    info = storage.stat("big.parquet")
    ranges = [(at * 40_000, at * 40_000 + 150_000) for at in range(64)]
    with ThreadPoolExecutor(16) as pool:
        read = list(pool.map(lambda span: storage.read(info, *span), ranges))
    assert read == [data[begin:end] for begin, end in ranges]


def test_ranges_are_exact(storage) -> None:
    info = storage.stat("a/2.parquet")
    for begin in range(6):
        for end in range(begin, 6):
            assert storage.read(info, begin, end) == b"22222"[begin:end]


def test_a_range_beyond_the_object_is_a_fault_of_the_caller(storage) -> None:
    with pytest.raises(InternalError, match="bytes 0 to 6"):
        storage.read(storage.stat("a/2.parquet"), 0, 6)


def test_an_object_that_was_written_again_is_refused(place, storage) -> None:
    info = storage.stat("b.arrow")
    place.put("b.arrow", b"cc")
    with pytest.raises(StoreDamagedError, match=r"b\.arrow' changed since it was admitted"):
        storage.read(info, 0, 2)
    assert storage.read(storage.stat("b.arrow"), 0, 2) == b"cc"


def test_a_missing_object_is_named(storage) -> None:
    with pytest.raises(StoreNotFoundError, match=r"a/3\.parquet' is not there"):
        storage.stat("a/3.parquet")
    with pytest.raises(StoreNotFoundError):
        storage.stat("a")


def test_a_url_of_one_object_finds_that_object(place, storage) -> None:
    above, infos = place.find("/a/2.parquet")
    assert [info.path for info in infos] == ["2.parquet"]
    assert above.read(infos[0], 0, 5) == b"22222"


def test_a_url_of_nothing_is_not_found(place, storage) -> None:
    assert place.storage("/nothing").list() == []
    with pytest.raises(StoreNotFoundError, match="nothing at"):
        place.find("/nothing")
    with pytest.raises(StoreNotFoundError, match="nothing at"):
        place.find("/nothing/at/all")


def test_a_url_may_end_in_a_slash(place, storage) -> None:
    assert place.storage("/").list() == storage.list()


def test_a_file_that_was_replaced_by_one_of_equal_size_and_time_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.arrow"
    path.write_bytes(b"old")
    storage = open_storage(f"file://{tmp_path}")
    info = storage.stat("x.arrow")
    (tmp_path / "new").write_bytes(b"new")
    status = path.stat()
    os.utime(tmp_path / "new", ns=(status.st_atime_ns, status.st_mtime_ns))
    (tmp_path / "new").replace(path)
    with pytest.raises(StoreDamagedError):
        storage.read(info, 0, 3)


def test_urls_and_paths_are_told_apart() -> None:
    assert is_url("s3://bucket/chat")
    assert not is_url("/stores/chat")
    assert not is_url("chat:1//x")


@pytest.mark.parametrize("url", ["ftp://host/x", "/stores/chat", "file://host/chat", "file://"])
def test_what_is_no_storage_is_refused_with_what_is(url: str) -> None:
    with pytest.raises(InvalidConfigError, match=r"memory://|file:///PATH"):
        open_storage(url)


def test_a_secret_in_a_url_is_refused_and_not_repeated() -> None:
    with pytest.raises(InvalidConfigError, match="environment") as refusal:
        open_storage("memory://key:hunter2@bucket/chat")
    assert "hunter2" not in str(refusal.value)


def test_unknown_options_are_refused_by_name_and_not_by_value() -> None:
    with pytest.raises(InvalidConfigError, match="secret_key") as refusal:
        open_storage("memory://chat", {"secret_key": "hunter2"})
    assert "hunter2" not in str(refusal.value)


def test_what_is_put_is_there_whole_in_place_of_what_was_and_gone_when_deleted(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
    storage = open_writable(f"s3://kinds/{uuid.uuid4().hex}")
    storage.put("a/1", b"first")
    # More than clients send in one part by themselves.
    storage.put("a/1", b"x" * 7_000_000)
    storage.put("b", b"other")
    assert [(info.path, info.size) for info in storage.list()] == [("a/1", 7_000_000), ("b", 5)]
    storage.delete(["a/1", "never there"])
    assert [info.path for info in storage.list()] == ["b"]


@pytest.mark.parametrize("url", ["hf://datasets/a/b", "file:///tmp/x", "memory://x"])
def test_what_cannot_be_written_to_is_not_opened_for_it(url: str) -> None:
    with pytest.raises(InvalidConfigError, match="cannot be written to; what can: s3://, gs://, az://"):
        open_writable(url)
