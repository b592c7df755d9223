"""Freed memory is kept for the next message, unless whoever starts the process says otherwise."""

import os
import subprocess
import sys

import pytest

# Touches 64 blocks of 2 MiB, each freed before the next, and prints how many pages the kernel had to give for them.
PROGRAM = """
import ctypes, resource
from dataserver.freed_memory import keep_freed_memory, use_one_heap
# PR_SET_THP_DISABLE: a kernel that gives huge pages unasked would give fewer.
ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)
{first}
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
bytes(2 << 20)
before = faults()
for number in range(64):
    block = b"x" * (2 << 20)
    other = b"y" * (1 << 20)
    del block, other
print(faults() - before)
"""

CLIENT = "keep_freed_memory()"
SERVER = "keep_freed_memory(); use_one_heap()"

# M_MMAP_THRESHOLD as it is where nobody says anything: what it allows comes from the kernel.
TOLD_OTHERWISE = "ctypes.CDLL(None).mallopt(-3, 128 << 10)"


def faults(first: str, **environment: str) -> int:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(first=first)],
        env=kept | environment,
        check=True,
        capture_output=True,
        text=True,
    )
    return int(found.stdout)


pytestmark = pytest.mark.skipif(
    not hasattr(os, "confstr") or "glibc" not in (os.confstr("CS_GNU_LIBC_VERSION") or ""),
    reason="only glibc is told what to keep",
)


@pytest.mark.parametrize("first", [CLIENT, SERVER])
def test_blocks_that_are_freed_are_taken_again_without_the_kernel(first: str) -> None:
    # 64 times 3 MiB are 49,152 pages; the first time they must come from somewhere.
    assert faults(first) < 2_000


@pytest.mark.parametrize("later", [CLIENT, SERVER])
def test_glibc_is_told_once_whoever_asks_again(later: str) -> None:
    assert faults("; ".join((CLIENT, TOLD_OTHERWISE, later))) > 30_000


def test_what_the_environment_says_of_memory_stands() -> None:
    assert faults(CLIENT, MALLOC_MMAP_THRESHOLD_="131072") > 30_000
