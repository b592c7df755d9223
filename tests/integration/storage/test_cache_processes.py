"""Several processes on one cache directory, killed at any moment; and a disk that is really full."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dataserver.storage import CacheKey, DiskCache

CRASHER = Path(__file__).with_name("cache_crasher.py")


@pytest.fixture
def fast_directory() -> Iterator[Path]:
    """In memory where there is a place for that: what is killed is the process, not the disk."""
    memory = Path("/dev/shm")  # noqa: S108
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder) / "cache"


@pytest.mark.parametrize("step", [pytest.param(2, marks=pytest.mark.slow), 13])
def test_a_kill_at_any_line_leaves_no_wrong_byte_no_lock_and_no_leak(fast_directory: Path, step: int) -> None:
    command = [sys.executable, CRASHER, "lines", fast_directory, str(step)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 300, "so many lines lead through filling and evicting"


def reader(directory: Path, seed: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, CRASHER, "read", directory, str(seed)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_processes_that_are_killed_again_and_again_do_not_disturb_the_one_that_lives(fast_directory: Path) -> None:
    lives = reader(fast_directory, 0)
    try:
        for seed in range(1, 5):
            dies = reader(fast_directory, seed)
            assert dies.stdout.read(seed) == b"." * seed
            assert lives.stdout.read(2) == b".."
            dies.kill()
            dies.communicate()
        assert lives.stdout.read(5) == b"....."
        assert lives.poll() is None
    finally:
        lives.kill()
        _, errors = lives.communicate()
    assert errors == b""
    cache = DiskCache(fast_directory, 10**6)
    on_disk = sum(path.stat().st_size for path in (fast_directory / "entries").iterdir())
    assert cache._space.counted_bytes() == on_disk
    assert list((fast_directory / "partial").iterdir()) == []


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB, where one may be mounted."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", folder]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("no file system may be mounted here")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_full_disk_makes_reads_go_past_the_cache(tiny_disk: Path, caplog: pytest.LogCaptureFixture) -> None:
    cache = DiskCache(tiny_disk / "cache", 10**9)
    keys = [CacheKey("s3://bucket/chat", f"part-{number}.parquet", "v1", 0, 100_000) for number in range(4)]
    for key in keys:
        assert cache.get(key, None, lambda key=key: key.path.encode()[:6].ljust(100_000)) == key.path.encode()[
            :6
        ].ljust(100_000)
    assert cache.figures.uncached == 2
    assert caplog.text.count("No space left on device") == 1
    assert [path.stat().st_size >= 100_000 for path in (tiny_disk / "cache" / "entries").iterdir()] == [True, True]
    assert list((tiny_disk / "cache" / "partial").iterdir()) == []
