"""Processes that use one cache directory and are killed.

cache_crasher.py lines DIRECTORY STEP    forks a child for every STEP-th line that filling and evicting
                                         runs through, kills it there, and checks what it left;
                                         prints how many lines there were
cache_crasher.py read DIRECTORY SEED     reads and checks until it is killed; prints a dot for every
                                         hundred reads
"""

import os
import random
import shutil
import signal
import sys
from pathlib import Path

import xxhash

from dataserver.storage import CacheKey, DiskCache
from dataserver.storage.cache_entry import entry_bytes

SIZE = 1000
KEYS = [CacheKey("s3://bucket/chat", f"part-{number}.parquet", "v1", 0, SIZE + number) for number in range(12)]
LIMIT = 3 * entry_bytes(KEYS[-1])


def data_of(key: CacheKey) -> bytes:
    return random.Random(key.path).randbytes(key.size)


def read(cache: DiskCache, key: CacheKey) -> None:
    expected = data_of(key)
    got = bytes(cache.get(key, xxhash.xxh3_128_hexdigest(expected), lambda: expected))
    assert got == expected, f"{key} are wrong"


def scenario(directory: Path) -> None:
    """Fill, evict, hit, and meet a damaged entry."""
    cache = DiskCache(directory, LIMIT)
    for number in (0, 1, 2, 3, 2):
        read(cache, KEYS[number])
    entry = directory / "entries" / KEYS[2].name
    entry.write_bytes(b"x" * entry.stat().st_size)
    read(cache, KEYS[2])


def check(directory: Path) -> None:
    """What any process must find after whatever happened."""
    cache = DiskCache(directory, LIMIT)
    counted = cache._space.counted_bytes()
    assert list((directory / "partial").iterdir()) == [], "what was being written was not swept"
    assert counted == sum(path.stat().st_size for path in (directory / "entries").iterdir()) <= LIMIT
    for key in KEYS[:5]:
        read(cache, key)
    assert cache.figures.uncached == 0


def run_until_line(directory: Path, last: int) -> bool:
    """Whether a child of ours was killed at the line of that number, or came to the end before."""
    child = os.fork()
    if child == 0:
        lines = 0

        def trace(frame, event, _):
            nonlocal lines
            if not Path(frame.f_code.co_filename).name.startswith(("cache_entry", "cache_space", "disk_cache")):
                return None
            if event == "line":
                lines += 1
                if lines > last:
                    os.kill(os.getpid(), signal.SIGKILL)
            return trace

        sys.settrace(trace)
        scenario(directory)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "the child failed by itself"
    return os.WIFSIGNALED(status)


def main() -> None:
    what, directory = sys.argv[1], Path(sys.argv[2])
    if what == "lines":
        signal.alarm(100)  # a lock that was left behind would hold us for ever
        place = 0
        while run_until_line(directory, place):
            check(directory)
            shutil.rmtree(directory)
            place += int(sys.argv[3])
        print(place)
        return
    cache = DiskCache(directory, LIMIT)
    draw = random.Random(int(sys.argv[3]))
    while True:
        for _ in range(100):
            read(cache, draw.choice(KEYS))
        print(".", end="", flush=True)


if __name__ == "__main__":
    main()
