"""The images of a micro-batch, as a field of the hot message and as arrays.

    small fields (by protobuf) | image_grid_thw tag, length, int64s | pixel_values tag, length, floats

Pixel values are far larger than tokens: they go from the stores into the message without another copy.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dataserver.errors import ChecksumMismatchError
from dataserver.v1 import batch_service_pb2
from dataserver.wire.fields import MAX_INT32, Payload, field, header, read_fields, read_numbers

_PIXEL_TYPES: Final[dict[int, np.dtype[Any]]] = {2: np.dtype("<f2"), 4: np.dtype("<f4")}

GRID_BYTES: Final = 3 * 8
"""Three int64 an image."""

# Field number << 3 | wire type, where 0 is a number and 2 has a length.
_PIXEL_BYTES: Final = 1 << 3
_PATCH_VALUES: Final = 2 << 3
_COUNTS: Final = 3 << 3 | 2
_GRID: Final = 4 << 3 | 2
_PIXELS: Final = 5 << 3 | 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Images:
    """k images of p patches of d values, end to end in the order of the n sub-sequences that they belong to.

    `pixel_values`: float16[p, d] or float32[p, d], read-only. `image_grid_thw`: int64[k, 3], read-only: patches of each
    image in time, height and width; image i has their product of rows in `pixel_values`.
    `counts`: int64[n], images of each sub-sequence.
    """

    pixel_values: NDArray[np.float16] | NDArray[np.float32]
    image_grid_thw: NDArray[np.int64]
    counts: NDArray[np.int64]

    @property
    def sub_sequences(self) -> NDArray[np.int64]:
        """The sub-sequence of each image, int64[k], ascending."""
        return np.repeat(np.arange(len(self.counts)), self.counts)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageSlices:
    """What `Images` are made of: a buffer a sub-sequence of grids (int64) and of values (float16 or float32).

    `pixel_bytes`: 2 or 4. `patch_values`: values of one patch.
    """

    pixel_bytes: int
    patch_values: int
    grids: Sequence[Payload]
    pixels: Sequence[Payload]


def encode_images(images: ImageSlices) -> list[Payload]:
    """Write an `Images` message, in parts."""
    small = batch_service_pb2.Images(
        pixel_bytes=images.pixel_bytes,
        patch_values=images.patch_values,
        counts=[len(grid) // GRID_BYTES for grid in images.grids],
    )
    parts: list[Payload] = [small.SerializeToString(), *field(_GRID, b"".join(images.grids))]
    if length := sum(map(len, images.pixels)):
        parts += [header(_PIXELS, length), *images.pixels]
    return parts


def decode_images(data: memoryview, sub_sequences: int, where: str) -> Images:
    """Read what `encode_images` wrote; the arrays are views of `data`.

    Raises `ChecksumMismatchError`, which begins with `where`, when its parts do not fit together.
    """
    numbers, payloads = read_fields(data)
    value_bytes, patch_values = numbers.get(_PIXEL_BYTES, 0), numbers.get(_PATCH_VALUES, 0)
    grid_bytes, pixel_bytes = payloads.get(_GRID, b""), payloads.get(_PIXELS, b"")
    counts = read_numbers(payloads.get(_COUNTS, b""))
    images = sum(counts)
    if len(counts) != sub_sequences or len(grid_bytes) != images * GRID_BYTES:
        raise ChecksumMismatchError(
            f"{where}: {images} images of {len(counts)} sub-sequences among {sub_sequences}, with {len(grid_bytes)} "
            "bytes of grids"
        )
    grid = np.frombuffer(grid_bytes, dtype="<i8").reshape(images, 3)
    patches = sum(time * height * width for time, height, width in grid.tolist())
    if value_bytes not in _PIXEL_TYPES or not 1 <= patch_values <= MAX_INT32 or grid.min(initial=1) < 1:
        raise ChecksumMismatchError(
            f"{where}: impossible pixel_bytes {value_bytes}, patch_values {patch_values} or grid"
        )
    if patches * patch_values * value_bytes != len(pixel_bytes):
        raise ChecksumMismatchError(
            f"{where}: {patches} patches of {patch_values} values, but {len(pixel_bytes)} bytes of them"
        )
    values = np.frombuffer(pixel_bytes, dtype=_PIXEL_TYPES[value_bytes])
    return Images(
        pixel_values=values.reshape(patches, patch_values), image_grid_thw=grid, counts=np.array(counts, dtype=np.int64)
    )
