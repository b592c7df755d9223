"""The disk cache by itself: the same bytes whatever is kept, within its bound, and nothing damaged served."""

import gc
import logging
import mmap
import resource
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from dataserver.errors import InvalidConfigError, StoreDamagedError
from dataserver.storage import CacheKey, DiskCache
from dataserver.storage.cache_entry import entry_bytes

MIB = 1 << 20


class Origin:
    """Where the bytes come from: any range, and how often each was asked for."""

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self.fetched: list[CacheKey] = []

    def data(self, key: CacheKey) -> bytes:
        pattern = xxhash.xxh3_128_digest(repr((self.seed, *key)).encode())
        return (pattern * (key.size // len(pattern) + 1))[: key.size]

    def read(self, cache: DiskCache, key: CacheKey) -> bytes:
        def fetch() -> bytes:
            self.fetched.append(key)
            return self.data(key)

        return bytes(cache.get(key, xxhash.xxh3_128_hexdigest(self.data(key)), fetch))


def key_of(number: int, size: int = 1000, version: str = "v1") -> CacheKey:
    return CacheKey("s3://bucket/chat", f"part-{number}.parquet", version, 7, 7 + size)


def on_disk(directory: Path) -> int:
    return sum(path.stat().st_size for folder in ("entries", "partial") for path in (directory / folder).iterdir())


def entries(directory: Path) -> list[Path]:
    return list((directory / "entries").iterdir())


@pytest.fixture
def origin() -> Origin:
    return Origin()


@pytest.mark.parametrize("size", [1, 1000, 3 * MIB])
def test_what_was_fetched_once_comes_from_the_disk(tmp_path: Path, origin: Origin, size: int) -> None:
    key = key_of(0, size)
    for cache in (DiskCache(tmp_path, 8 * MIB), DiskCache(tmp_path, 8 * MIB)):
        for _ in range(2):
            assert origin.read(cache, key) == origin.data(key)
    assert origin.fetched == [key]
    assert cache.figures.hits == 2


def test_an_empty_range_is_neither_fetched_nor_kept(tmp_path: Path, origin: Origin) -> None:
    assert origin.read(DiskCache(tmp_path, 1000), key_of(0, 0)) == b""
    assert origin.fetched == []


def test_another_version_or_range_is_another_entry(tmp_path: Path, origin: Origin) -> None:
    cache = DiskCache(tmp_path, MIB)
    keys = [key_of(0), key_of(0, version="v2"), key_of(0, 999), key_of(1), key_of(0)._replace(url="s3://other")]
    for key in keys * 2:
        assert origin.read(cache, key) == origin.data(key)
    assert origin.fetched == keys


LIMIT = 4000
SIZES = st.sampled_from([1, 100, 700, 1500, 3000])


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 5), SIZES), max_size=30))
def test_any_sequence_of_reads_gives_the_bytes_of_the_origin_within_the_bound(reads) -> None:
    origin = Origin()
    with TemporaryDirectory() as folder:
        directory = Path(folder)
        caches = [DiskCache(directory, LIMIT), DiskCache(directory, LIMIT)]
        last = None
        for which, number, size in reads:
            key = key_of(number, size)
            before = len(origin.fetched)
            assert origin.read(caches[which], key) == origin.data(key)
            assert key != last or len(origin.fetched) == before, "what was used last is still there"
            assert on_disk(directory) <= LIMIT
            assert caches[which]._space.counted_bytes() == on_disk(directory), "what is counted is what is there"
            last = key
        assert sum(cache.figures.uncached for cache in caches) == 0


def test_the_least_recently_used_goes_first(tmp_path: Path, origin: Origin) -> None:
    cache = DiskCache(tmp_path, 4 * entry_bytes(key_of(0)))
    for number in (0, 1, 2, 3, 0, 4):
        origin.read(cache, key_of(number))
    origin.fetched.clear()
    for number in (4, 3, 0, 2):
        origin.read(cache, key_of(number))
    assert origin.fetched == [], "1 went, to make room for 4"
    origin.read(cache, key_of(1))
    assert origin.fetched == [key_of(1)]


def test_a_limit_below_one_range_is_refused_with_both_numbers(tmp_path: Path, origin: Origin) -> None:
    cache = DiskCache(tmp_path, 2000)
    with pytest.raises(
        InvalidConfigError, match=r"may hold 2,000 bytes, but bytes 7 to 5,007 of 's3://.*' alone take 5,\d{3}"
    ):
        origin.read(cache, key_of(0, 5000))
    with pytest.raises(InvalidConfigError, match="raise its limit"):
        cache.check_fits(key_of(0, 5000))
    assert origin.fetched == []


def test_what_is_in_use_stays_counted_and_is_not_removed(tmp_path: Path, origin: Origin) -> None:
    size = 2 * MIB
    cache = DiskCache(tmp_path, 3 * entry_bytes(key_of(0, size)))
    for number in range(3):
        origin.read(cache, key_of(number, size))
    held = cache.get(key_of(0, size), None, lambda: pytest.fail("it is there"))
    assert isinstance(held, mmap.mmap)
    for number in (1, 2, 3, 4, 5):
        origin.read(cache, key_of(number, size))
    assert (tmp_path / "entries" / key_of(0, size).name).exists()
    assert bytes(held) == origin.data(key_of(0, size))
    assert on_disk(tmp_path) <= cache.limit_bytes
    del held
    gc.collect()
    for number in (6, 7, 8):
        origin.read(cache, key_of(number, size))
    assert not (tmp_path / "entries" / key_of(0, size).name).exists()


def test_when_all_is_in_use_reads_go_past_the_cache(tmp_path: Path, origin: Origin, caplog) -> None:
    size = 2 * MIB
    cache = DiskCache(tmp_path, 2 * entry_bytes(key_of(0, size)))
    for number in range(2):
        origin.read(cache, key_of(number, size))
    held = [cache.get(key_of(number, size), None, lambda: b"") for number in range(2)]
    for number in (2, 3):
        assert origin.read(cache, key_of(number, size)) == origin.data(key_of(number, size))
    assert cache.figures.uncached == 2
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert "everything in it is in use" in caplog.text
    assert len(entries(tmp_path)) == len(held)


def test_a_map_outlives_the_removal_of_its_file(tmp_path: Path, origin: Origin) -> None:
    cache = DiskCache(tmp_path, 8 * MIB)
    key = key_of(0, 2 * MIB)
    origin.read(cache, key)
    held = cache.get(key, None, lambda: b"")
    for path in entries(tmp_path):
        path.unlink()
    assert bytes(held) == origin.data(key)


@pytest.mark.parametrize("size", [1000, 2 * MIB])
@pytest.mark.parametrize("where", ["first byte", "middle", "key", "digest", "length", "mark", "cut", "longer"])
def test_a_byte_that_the_disk_changed_is_never_served(tmp_path: Path, origin: Origin, size: int, where: str) -> None:
    cache = DiskCache(tmp_path, 16 * MIB)
    key = key_of(0, size)
    origin.read(cache, key)
    (path,) = entries(tmp_path)
    data = bytearray(path.read_bytes())
    places = {"first byte": 0, "middle": size // 2, "key": size + 3, "digest": -40, "length": -24, "mark": -1}
    if where in places:
        data[places[where]] ^= 1
    path.write_bytes({"cut": data[:-1], "longer": data + b"x"}.get(where, data))
    assert origin.read(cache, key) == origin.data(key)
    assert cache.figures.damaged == 1
    assert origin.read(cache, key) == origin.data(key)
    assert origin.fetched == [key, key], "the damaged entry was replaced"
    assert cache._space.counted_bytes() == on_disk(tmp_path)


def test_an_entry_of_another_digest_than_the_manifest_is_not_served(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, MIB)
    key = key_of(0)
    cache.get(key, None, lambda: b"x" * key.size)
    right = xxhash.xxh3_128_hexdigest(b"y" * key.size)
    assert cache.get(key, right, lambda: b"y" * key.size) == b"y" * key.size


@pytest.mark.parametrize("wrong", [b"x" * 1000, b"y" * 999, b""])
def test_bytes_that_are_not_those_of_the_manifest_do_not_come_in(tmp_path: Path, wrong: bytes) -> None:
    cache = DiskCache(tmp_path, MIB)
    right = xxhash.xxh3_128_hexdigest(b"y" * 1000)
    with pytest.raises(StoreDamagedError, match=r"part-0\.parquet.*not the one that was admitted"):
        cache.get(key_of(0), right, lambda: wrong)
    assert not (tmp_path / "entries").exists() or entries(tmp_path) == []


def test_a_range_is_fetched_once_however_many_ask_at_once(tmp_path: Path, origin: Origin) -> None:
    cache = DiskCache(tmp_path, MIB)
    key = key_of(0)
    all_ask, asked, come = threading.Barrier(8), threading.Event(), threading.Event()
    fetches = []

    def fetch() -> bytes:
        fetches.append(key)
        asked.set()
        assert come.wait(60)
        return origin.data(key)

    def ask(_: int) -> bytes:
        all_ask.wait()
        return bytes(cache.get(key, None, fetch))

    with ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(ask, number) for number in range(8)]
        assert asked.wait(60)
        come.set()
        assert {answer.result() for answer in answers} == {origin.data(key)}
    assert fetches == [key]


def test_a_fetch_that_fails_fails_for_all_who_wait_and_is_tried_anew_later(tmp_path: Path, origin: Origin) -> None:
    cache = DiskCache(tmp_path, MIB)

    def fail() -> bytes:
        raise StoreDamagedError("gone")

    with pytest.raises(StoreDamagedError, match="gone"):
        cache.get(key_of(0), None, fail)
    assert origin.read(cache, key_of(0)) == origin.data(key_of(0))
    assert cache._space.counted_bytes() == on_disk(tmp_path)


def test_threads_that_read_and_evict_get_their_own_bytes(tmp_path: Path, origin: Origin) -> None:
    caches = [DiskCache(tmp_path, 5000), DiskCache(tmp_path, 5000)]
    work = [(caches[at % 2], key_of(at * 7 % 11, 200 + at * 37 % 900)) for at in range(400)]
    with ThreadPoolExecutor(8) as pool:
        read = list(pool.map(lambda item: origin.read(*item), work))
    assert read == [origin.data(key) for _, key in work]
    assert caches[0]._space.counted_bytes() == on_disk(tmp_path) <= 5000


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_disk_that_takes_no_more_is_done_without_and_told_once(tmp_path: Path, origin: Origin, caplog) -> None:
    cache = DiskCache(tmp_path, MIB)
    with files_of_at_most(500):
        for number in range(5):
            assert origin.read(cache, key_of(number)) == origin.data(key_of(number))
    assert cache.figures.uncached == 5
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert str(tmp_path) in caplog.text
    assert entries(tmp_path) == []
    origin.read(cache, key_of(0))
    assert len(entries(tmp_path)) == 1, "it is used again once it can be"
    assert cache._space.counted_bytes() == on_disk(tmp_path)


def test_a_directory_that_is_no_directory_is_done_without(tmp_path: Path, origin: Origin, caplog) -> None:
    (tmp_path / "file").write_text("")
    cache = DiskCache(tmp_path / "file", MIB)
    assert origin.read(cache, key_of(0)) == origin.data(key_of(0))
    assert "cannot be used" in caplog.text


def test_a_directory_that_was_deleted_is_made_again(tmp_path: Path, origin: Origin) -> None:
    cache = DiskCache(tmp_path / "cache", MIB)
    origin.read(cache, key_of(0))
    (tmp_path / "cache").rename(tmp_path / "gone")
    assert origin.read(cache, key_of(0)) == origin.data(key_of(0))
    origin.fetched.clear()
    assert origin.read(cache, key_of(0)) == origin.data(key_of(0))
    assert origin.fetched == []
