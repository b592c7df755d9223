"""What compiled functions may do besides arithmetic; `lowering` says how it is done."""

import ctypes
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

Index: TypeAlias = "int | np.integer[Any]"

# Four of the widest vectors that most processors have.
BLOCK_BYTES: Final = 128


def copy_bytes(out: NDArray[np.uint8], at: Index, values: NDArray[np.uint8], begin: Index, count: Index) -> None:
    """Copy `count` bytes from `values[begin]` on to `out[at]` on. No loop comes near it."""
    out[at : at + count] = values[begin : begin + count]


def copy_from(out: NDArray[np.uint8], at: Index, address: Index, count: Index) -> None:
    """Copy `count` bytes that lie at an address of this process to `out[at]` on. Whoever calls keeps them there."""
    out[at : at + count] = np.frombuffer(ctypes.string_at(int(address), int(count)), dtype=np.uint8)


def copy_block(out: NDArray[np.uint8], at: Index, values: NDArray[np.uint8], begin: Index) -> None:
    """Copy `BLOCK_BYTES` from `values[begin]` on to `out[at]` on, all loaded before any is stored."""
    out[at : at + BLOCK_BYTES] = values[begin : begin + BLOCK_BYTES]


def fetch_ahead(values: NDArray[np.uint8], at: Index) -> None:
    """Have the processor load the cache line of `values[at]` while it goes on."""
