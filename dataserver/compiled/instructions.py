"""What compiled functions may do besides arithmetic; `lowering` says how it is done."""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Index: TypeAlias = "int | np.integer[Any]"


def copy_bytes(out: NDArray[np.uint8], at: Index, values: NDArray[np.uint8], begin: Index, count: Index) -> None:
    """Copy `count` bytes from `values[begin]` on to `out[at]` on. No loop comes near it."""
    out[at : at + count] = values[begin : begin + count]


def fetch_ahead(values: NDArray[np.uint8], at: Index) -> None:
    """Have the processor load the cache line of `values[at]` while it goes on."""
