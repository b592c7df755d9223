"""What compiled functions may do besides arithmetic; `lowering` says how it is done."""

import ctypes
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Index: TypeAlias = "int | np.integer[Any]"


def copy_bytes(out: NDArray[np.uint8], at: Index, values: NDArray[np.uint8], begin: Index, count: Index) -> None:
    """Copy `count` bytes from `values[begin]` on to `out[at]` on. No loop comes near it."""
    out[at : at + count] = values[begin : begin + count]


def copy_from(out: NDArray[np.uint8], at: Index, address: Index, count: Index) -> None:
    """Copy `count` bytes that lie at an address of this process to `out[at]` on. Whoever calls keeps them there."""
    out[at : at + count] = np.frombuffer(ctypes.string_at(int(address), int(count)), dtype=np.uint8)


def fetch_ahead(values: NDArray[np.uint8], at: Index) -> None:
    """Have the processor load the cache line of `values[at]` while it goes on."""
