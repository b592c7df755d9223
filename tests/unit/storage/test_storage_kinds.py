"""What holds for storages that need no server: `file://` and `memory://`."""

import os
from pathlib import Path

import fsspec
import pytest

from dataserver.errors import InternalError, InvalidConfigError, StoreDamagedError, StoreNotFoundError
from dataserver.storage import find_objects, is_url, open_storage

FILES = {"b.arrow": b"bb", "a/2.parquet": b"22222", "a/10.parquet": b"", "c c/ü.jsonl": b"x" * 1000}


@pytest.fixture(params=["file", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path):
    """A URL, and what puts bytes below it."""
    if request.param == "file":

        def put(path: str, data: bytes) -> None:
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_bytes(data)

        yield f"file://{tmp_path}", put
    else:
        memory = fsspec.filesystem("memory")
        root = f"/{tmp_path.name}"
        yield f"memory:/{root}", lambda path, data: memory.pipe_file(f"{root}/{path}", data)
        if memory.exists(root):
            memory.rm(root, recursive=True)


@pytest.fixture
def storage(place):
    url, put = place
    for path, data in FILES.items():
        put(path, data)
    return open_storage(url)


def test_everything_below_the_url_is_listed_sorted(storage) -> None:
    assert [(info.path, info.size) for info in storage.list()] == [
        ("a/10.parquet", 0),
        ("a/2.parquet", 5),
        ("b.arrow", 2),
        ("c c/ü.jsonl", 1000),
    ]


def test_what_stat_tells_is_what_is_listed(storage) -> None:
    assert [storage.stat(info.path) for info in storage.list()] == storage.list()


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
    place[1]("b.arrow", b"cc")
    with pytest.raises(StoreDamagedError, match=r"b\.arrow' changed since it was admitted"):
        storage.read(info, 0, 2)
    assert storage.read(storage.stat("b.arrow"), 0, 2) == b"cc"


def test_a_missing_object_is_named(storage) -> None:
    with pytest.raises(StoreNotFoundError, match=r"a/3\.parquet' is not there"):
        storage.stat("a/3.parquet")
    with pytest.raises(StoreNotFoundError):
        storage.stat("a")


def test_a_url_of_one_object_finds_that_object(place, storage) -> None:
    above, infos = find_objects(f"{place[0]}/a/2.parquet")
    assert [info.path for info in infos] == ["2.parquet"]
    assert above.read(infos[0], 0, 5) == b"22222"


def test_a_url_of_nothing_is_not_found(place) -> None:
    assert open_storage(place[0] + "/nothing").list() == []
    with pytest.raises(StoreNotFoundError, match="nothing at"):
        find_objects(place[0] + "/nothing")


def test_a_url_may_end_in_a_slash(place, storage) -> None:
    assert open_storage(place[0] + "/").list() == storage.list()


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
