"""A broken rule of a row, and how the first row that breaks it is found."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dataserver.stores.ragged import Ragged, row_at


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """The first broken rule: `row` counts from the beginning of the piece."""

    row: int
    column: str
    text: str


def null_row(column: Ragged, name: str, text: str) -> Iterator[Fault]:
    """A fault at the first row that is null."""
    if column.null_rows is not None:
        yield from at_first_row(column.null_rows, name, text)


def at_first_row(broken: NDArray[np.bool_], column: str, text: str | Callable[[int], str]) -> Iterator[Fault]:
    """A fault at the first row of `broken` (bool[n]), if there is one."""
    if broken.any():
        row = int(broken.argmax())
        yield Fault(row=row, column=column, text=text if isinstance(text, str) else text(row))


def at_first_value(
    broken: NDArray[np.bool_], ends: NDArray[np.int64], column: str, text: Callable[[int], str]
) -> Iterator[Fault]:
    """A fault at the first value of `broken`, in the row of it, by the rows' ends (int64[n])."""
    if broken.any():
        at = int(broken.argmax())
        yield Fault(row=row_at(ends, at), column=column, text=text(at))


def largest_float32(dtype: np.dtype[Any]) -> float:
    """The largest number that is finite in `dtype` and as float32."""
    return float(np.finfo(np.float16 if dtype == np.float16 else np.float32).max)
