"""`dataserver store pull`: whole or not at all, resumed at a byte, and never outside its directory."""

import errno
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import xxhash

from dataserver.cli.main import main
from dataserver.errors import DataServerError, InvalidConfigError, StoreDamagedError, StoreRefusedError
from dataserver.storage import ObjectInfo, open_storage
from dataserver.storage.pull import PullReport, pull
from dataserver.storage.staging import RECORD, Part
from dataserver.stores import open_store
from dataserver.testing import write_store

# Pieces are small here, so that small files have many.
PIECE = 4096
FILES = {
    "a/part-0.parquet": os.urandom(2 * PIECE + 1234),
    "a/b/part-1.parquet": os.urandom(3),
    "empty.parquet": b"",
    "ü %20.parquet": os.urandom(PIECE + 1),
}


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dataserver.storage.pull._PIECE_BYTES", PIECE)


class Source:
    """A storage that fails as it is told to, and tells what was read of it."""

    url = "memory://source"

    def __init__(self, files: dict[str, bytes] = FILES) -> None:
        self.files = dict(files)
        self.version = "v1"
        self.asked: list[tuple[str, int, int]] = []
        self.fails_after = 10**6
        self.lock = threading.Lock()

    def list(self):
        return [
            ObjectInfo(path=path, size=len(data), version=self.version) for path, data in sorted(self.files.items())
        ]

    def read(self, info: ObjectInfo, begin: int, end: int) -> bytes:
        with self.lock:
            self.asked.append((info.path, begin, end))
            if len(self.asked) > self.fails_after:
                raise StoreDamagedError("out of reach")
        return self.files[info.path][begin:end]


def pull_all(source: Source, directory: Path, **arguments: object) -> PullReport:
    return pull(source, source.list(), directory, lambda done, total: None, **arguments)


def held(directory: Path) -> dict[str, bytes]:
    found = [path for path in directory.rglob("*") if path.is_file() and path.name != RECORD]
    return {path.relative_to(directory).as_posix(): path.read_bytes() for path in found}


def staged(directory: Path) -> Path:
    return directory.with_name(f".{directory.name}.pulling")


SIZE = sum(map(len, FILES.values()))


def test_all_files_arrive_under_their_names_and_nothing_is_left_beside(tmp_path: Path) -> None:
    seen = []
    report = pull(source := Source(), source.list(), tmp_path / "chat", lambda done, total: seen.append((done, total)))
    assert held(tmp_path / "chat") == FILES
    assert [path.name for path in tmp_path.iterdir()] == ["chat"]
    assert report == PullReport(files=4, size=SIZE, kept=0)
    assert seen[0] == (0, SIZE)
    assert seen[-1] == (SIZE, SIZE)
    assert seen == sorted(seen)
    record = json.loads((tmp_path / "chat" / RECORD).read_text())
    assert {file["path"]: file["digest"] for file in record["files"]} == {
        path: xxhash.xxh3_128_hexdigest(data) for path, data in FILES.items()
    }


def test_a_second_pull_fetches_nothing(tmp_path: Path) -> None:
    pull_all(Source(), tmp_path / "chat")
    source = Source()
    assert pull_all(source, tmp_path / "chat").kept == SIZE
    assert source.asked == []


@pytest.mark.parametrize("fails_after", range(6))
def test_a_pull_that_failed_goes_on_where_it_stopped(tmp_path: Path, fails_after: int) -> None:
    source = Source()
    source.fails_after = fails_after
    with pytest.raises(StoreDamagedError, match="out of reach"):
        pull_all(source, tmp_path / "chat")
    assert not (tmp_path / "chat").exists(), "what is not whole has no name"
    again = Source()
    report = pull_all(again, tmp_path / "chat")
    assert held(tmp_path / "chat") == FILES
    assert report.kept + sum(end - begin for _, begin, end in again.asked) == SIZE
    assert report.kept > 0 or fails_after < 2


def test_what_the_disk_lost_of_a_part_is_fetched_again(tmp_path: Path) -> None:
    source = Source()
    source.fails_after = 3
    with pytest.raises(StoreDamagedError):
        pull_all(source, tmp_path / "chat")
    part = staged(tmp_path / "chat") / "part"
    data = bytearray(part.read_bytes())
    data[-1] ^= 1
    part.write_bytes(data)
    pull_all(Source(), tmp_path / "chat")
    assert held(tmp_path / "chat") == FILES


def test_a_file_that_changed_between_two_pulls_is_fetched_anew(tmp_path: Path) -> None:
    source = Source()
    source.fails_after = 5
    with pytest.raises(StoreDamagedError):
        pull_all(source, tmp_path / "chat")
    new = Source({path: bytes(reversed(data)) for path, data in FILES.items() if path != "a/b/part-1.parquet"})
    new.version = "v2"
    pull_all(new, tmp_path / "chat")
    assert held(tmp_path / "chat") == new.files


def test_a_store_that_was_pulled_is_not_changed_under_its_readers(tmp_path: Path) -> None:
    pull_all(Source(), tmp_path / "chat")
    new = Source()
    new.version = "v2"
    with pytest.raises(InvalidConfigError, match=r"was pulled before.*'a/b/part-1\.parquet' differs"):
        pull_all(new, tmp_path / "chat")
    (tmp_path / "chat" / "empty.parquet").write_bytes(b"x")
    with pytest.raises(InvalidConfigError, match=r"'empty\.parquet' differs"):
        pull_all(Source(), tmp_path / "chat")


def test_a_directory_that_holds_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "chat").mkdir()
    (tmp_path / "chat" / "mine.txt").write_text("mine")
    with pytest.raises(InvalidConfigError, match="was not pulled"):
        pull_all(Source(), tmp_path / "chat")
    assert held(tmp_path / "chat") == {"mine.txt": b"mine"}


def test_an_empty_directory_is_filled(tmp_path: Path) -> None:
    (tmp_path / "chat").mkdir()
    pull_all(Source(), tmp_path / "chat")
    assert held(tmp_path / "chat") == FILES


@pytest.mark.parametrize("key", ["../x.parquet", "a/../../x", "/etc/x", "a//b", "./x", "a/", "x\0y", RECORD, ".."])
def test_a_name_that_leads_elsewhere_is_refused_before_anything_is_written(tmp_path: Path, key: str) -> None:
    source = Source({"good.parquet": b"1", key: b"evil"})
    with pytest.raises(StoreRefusedError, match="no path below a directory"):
        pull_all(source, tmp_path / "chat")
    assert list(tmp_path.iterdir()) == []


def test_an_object_that_is_also_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreRefusedError, match="both an object 'a' and 'a/b/c'"):
        pull_all(Source({"a": b"1", "a/b/c": b"2"}), tmp_path / "chat")


def test_known_digests_are_compared(tmp_path: Path) -> None:
    right = {path: xxhash.xxh3_128_hexdigest(data) for path, data in FILES.items()}
    with pytest.raises(StoreDamagedError, match=r"a/part-0\.parquet"):
        pull_all(Source(), tmp_path / "chat", digests=right | {"a/part-0.parquet": "0" * 32})
    pull_all(Source(), tmp_path / "chat", digests=right)
    assert held(tmp_path / "chat") == FILES


def test_a_second_pull_at_the_same_time_is_refused(tmp_path: Path) -> None:
    source = Source()
    refusals = []
    read = source.read

    def read_and_pull(info: ObjectInfo, begin: int, end: int) -> bytes:
        with source.lock:
            if not refusals:
                with pytest.raises(InvalidConfigError, match="Another process is pulling") as refusal:
                    pull_all(Source(), tmp_path / "chat")
                refusals.append(refusal)
        return read(info, begin, end)

    source.read = read_and_pull
    pull_all(source, tmp_path / "chat")
    assert len(refusals) == 1


def test_a_disk_that_is_too_small_is_seen_before_it_is_full(tmp_path: Path) -> None:
    infos = [ObjectInfo(path="huge.parquet", size=1 << 60, version="v1")]
    with pytest.raises(InvalidConfigError, match=r"1,152,921,504,606,846,976 bytes are still to come"):
        pull(Source(), infos, tmp_path / "chat", lambda done, total: None)


def test_a_disk_that_fails_is_told_and_what_was_pulled_is_kept(tmp_path: Path, monkeypatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "part")

    with monkeypatch.context() as broken:
        broken.setattr(Part, "write", fail)
        with pytest.raises(InvalidConfigError, match=r"No space left on device.*pull again to go on"):
            pull_all(Source(), tmp_path / "chat")
    pull_all(Source(), tmp_path / "chat")
    assert held(tmp_path / "chat") == FILES


@pytest.fixture
def bucket(s3) -> str:
    for path, data in FILES.items():
        s3.put("pulls", f"chat/{path}", data)
    return "s3://pulls/chat"


def arguments(url: str, directory: Path, s3) -> list[str]:
    options = [f"--storage-option={name}={value}" for name, value in s3.options.items()]
    return ["store", "pull", url, str(directory), *options]


def test_the_command_pulls_from_a_real_server_and_says_what_came(bucket, s3, tmp_path: Path, capsys) -> None:
    assert main(arguments(bucket, tmp_path / "chat", s3)) == 0
    assert capsys.readouterr().out == f"pulled 4 files, {SIZE:,} bytes, to {tmp_path / 'chat'}\n"
    assert held(tmp_path / "chat") == FILES
    assert main([*arguments(bucket, tmp_path / "chat", s3), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kept"] == SIZE


def test_the_command_pulls_one_object(bucket, s3, tmp_path: Path) -> None:
    assert main(arguments(f"{bucket}/a/part-0.parquet", tmp_path / "one", s3)) == 0
    assert held(tmp_path / "one") == {"part-0.parquet": FILES["a/part-0.parquet"]}


def test_a_pulled_store_is_the_store(s3, tmp_path: Path) -> None:
    write_store(tmp_path / "chat", lengths=[4, 9, 300])
    for path in (tmp_path / "chat").iterdir():
        s3.put("pulls", f"store/{path.name}", path.read_bytes())
    assert main(arguments("s3://pulls/store", tmp_path / "pulled", s3)) == 0
    stores = [open_store(tmp_path / name, index_dir=tmp_path / "index") for name in ("chat", "pulled")]
    assert stores[0].fingerprint == stores[1].fingerprint
    for store in stores:
        store.close()


def test_a_url_of_nothing_is_one_line_and_status_1(bucket, s3, tmp_path: Path, capsys) -> None:
    assert main(arguments(f"{bucket}/nothing", tmp_path / "chat", s3)) == 1
    assert capsys.readouterr().err == f"dataserver: There is nothing at '{bucket}/nothing'.\n"
    assert list(tmp_path.iterdir()) == []


def test_a_killed_command_is_completed_by_the_next(s3, tmp_path: Path) -> None:
    data = os.urandom(40 << 20)
    s3.put("pulls", "big/part-0.parquet", data)
    command = [sys.executable, "-m", "dataserver.cli.main", *arguments("s3://pulls/big", tmp_path / "chat", s3)]
    process = subprocess.Popen(command)
    part = staged(tmp_path / "chat") / "part"
    while process.poll() is None and not (part.exists() and part.stat().st_size > 0):
        time.sleep(0.005)
    process.kill()
    process.wait()
    assert held(tmp_path / "chat") in ({}, {"part-0.parquet": data}), "all of it or nothing"
    subprocess.run(command, check=True)
    assert held(tmp_path / "chat") == {"part-0.parquet": data}


def test_every_fault_of_a_pull_is_one_of_ours(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataServerError):
        pull_all(Source(), tmp_path / "file" / "chat")
    with pytest.raises(DataServerError):
        pull_all(Source(), tmp_path / "file")


def test_files_are_pulled_through_the_same_interface(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "x.arrow").write_bytes(b"123")
    storage = open_storage(f"file://{tmp_path}/source")
    pull(storage, storage.list(), tmp_path / "chat", lambda done, total: None)
    assert held(tmp_path / "chat") == {"x.arrow": b"123"}


def test_a_directory_that_cannot_be_made_is_told_and_nothing_is_said_to_be_kept(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    source = Source()
    with pytest.raises(InvalidConfigError, match="Nothing was pulled: name a directory that can be made"):
        pull(source, source.list(), tmp_path / "file" / "store", lambda *_: None)
    assert source.asked == []
