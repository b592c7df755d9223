"""Arrays that are filled block by block, in place, by any number of processes at once.

    lengths.i4 …   what is known of each block: nothing (a hole in the file) until someone fills it in
    known.i8       of each block the XXH3-128 of what was filled in; 0 until then

What a block holds follows from its store, so two processes that fill the same block write the same bytes. The digest is
written last, and compared before a block is taken for known: one that was half written when its process was killed, or
whose bytes reached the disk in another order than they were written, counts as not there and is filled in anew.
"""

import os
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import xxhash
from numpy.typing import NDArray

from dataserver.errors import InternalError
from dataserver.stores.index import Building, map_array, unwritable

KNOWN = "known.i8"


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockArray:
    """An array of numbers of `dtype`; those of block b lie from `begins[b]` up to `begins[b + 1]` (int64[b + 1])."""

    dtype: str
    begins: NDArray[np.int64]

    def place(self, block: int) -> slice:
        """Where the numbers of a block lie."""
        return slice(*self.begins[block : block + 2].tolist())


class BlockArrays:
    """The arrays of one directory, mapped, by name in `arrays`. Safe to use from several threads and processes."""

    def __init__(self, directory: Path, layout: Mapping[str, BlockArray], arrays: Mapping[str, NDArray[Any]]) -> None:
        self.arrays = arrays
        self._directory = directory
        self._layout = dict(sorted(layout.items()))
        self._blocks = len(next(iter(layout.values())).begins) - 1
        self._files = {name: os.open(directory / name, os.O_WRONLY) for name in (*self._layout, KNOWN)}
        weakref.finalize(self, _close_all, tuple(self._files.values()))
        # What this process compared or wrote itself.
        self._sure = np.zeros(self._blocks, dtype=np.bool_)

    @classmethod
    def open(cls, directory: Path, layout: Mapping[str, BlockArray]) -> Self | None:
        """Map the arrays in `directory`; None unless all of them are there in full."""
        blocks = len(next(iter(layout.values())).begins) - 1
        sizes = {name: (each.dtype, int(each.begins[-1])) for name, each in layout.items()} | {
            KNOWN: ("<i8", 2 * blocks)
        }
        arrays = {name: map_array(directory / name, dtype, count) for name, (dtype, count) in sizes.items()}
        found = {name: array for name, array in arrays.items() if array is not None}
        if len(found) < len(sizes):
            return None
        try:
            return cls(directory, layout, found)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise unwritable(directory, error) from error

    def sure(self, blocks: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of `blocks` (int64[n]) were found to be known before, bool[n]; `knows` finds it out."""
        return self._sure[blocks]

    def noted(self) -> NDArray[np.bool_]:
        """Which blocks somebody filled in, bool[b]; whether they are whole is not looked at."""
        return np.asarray(self.arrays[KNOWN].reshape(-1, 2).any(axis=1))

    def knows(self, block: int) -> bool:
        """Whether a block is filled in."""
        if not self._sure[block]:
            noted = self.arrays[KNOWN][2 * block : 2 * block + 2]
            values = {name: self.arrays[name][each.place(block)] for name, each in self._layout.items()}
            self._sure[block] = bool(noted.any()) and noted.tobytes() == _digest(block, values)
        return bool(self._sure[block])

    def fill(self, block: int, values: Mapping[str, NDArray[Any]]) -> None:
        """Fill in a block: `values` by the arrays' names. Raises `InvalidConfigError` where it cannot be written."""
        written: dict[str, NDArray[Any]] = {}
        for name, each in self._layout.items():
            written[name] = np.ascontiguousarray(values[name].reshape(-1), dtype=each.dtype)
            place = each.place(block)
            if len(written[name]) != place.stop - place.start:
                raise InternalError(f"block {block}: {len(written[name])} numbers of {name}, its rows tell another")
            self._write(name, written[name].tobytes(), place.start * written[name].itemsize)
        self._write(KNOWN, _digest(block, written), 16 * block)
        self._sure[block] = True

    def _write(self, name: str, data: bytes, at: int) -> None:
        """A write into a hole may find the disk full: then it fails, where one through a map would end the process."""
        try:
            while data:
                count = os.pwrite(self._files[name], data, at)
                data, at = data[count:], at + count
        except OSError as error:
            raise unwritable(self._directory, error) from error


def reserve_arrays(building: Building, layout: Mapping[str, BlockArray]) -> None:
    """Make the arrays that are not in `building` yet, with nothing filled in."""
    blocks = len(next(iter(layout.values())).begins) - 1
    for name, each in layout.items():
        if not (building.path / name).exists():
            building.reserve(name, int(each.begins[-1]) * np.dtype(each.dtype).itemsize)
    building.reserve(KNOWN, 16 * blocks)


def _digest(block: int, values: Mapping[str, NDArray[Any]]) -> bytes:
    """16 bytes, never all 0."""
    found = xxhash.xxh3_128(f"{block}".encode())
    for array in values.values():
        found.update(np.ascontiguousarray(array).data)
    return found.digest()


def _close_all(descriptors: tuple[int, ...]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
