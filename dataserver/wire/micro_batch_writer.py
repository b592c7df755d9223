"""Micro-batches as bytes: a message of its size is made first, then everything is written to its place in it.

Protobuf's Python runtime copies the token bytes once to build the message and once more to serialise it. So it is
written by hand, as exactly the bytes that any protobuf implementation would write, and tokens are copied once, from
where a store has them to where gRPC takes them:

    response tag | length | checksum | numbers | lengths | loss_mask | loss_weight | images | fill | tokens
                            └ of all that follows it                                                └ aligned
"""

import ctypes
from collections.abc import Sequence
from struct import Struct
from typing import Any, Final

import numpy as np
import xxhash
from numpy.typing import NDArray

from dataserver.wire import micro_batch_loops as loops
from dataserver.wire.images import ImageSlices, encode_images
from dataserver.wire.micro_batch_tags import CHECKSUM_BYTES

_DIGEST: Final = Struct("<Q")

# Python's C interface: bytes of a size without contents, where they lie, and a view of memory.
_make: Final = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_ssize_t)(
    ("PyBytes_FromStringAndSize", ctypes.pythonapi)
)
_address: Final = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object)(("PyBytes_AsString", ctypes.pythonapi))
_view: Final = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int)(
    ("PyMemoryView_FromMemory", ctypes.pythonapi)
)
_WRITABLE: Final = 0x200


class MicroBatchWriter:
    """Writes micro-batches of consecutive rounds, at least one, as one `StreamMicroBatchesResponse`, or as several.

    `row_ends`, `position_ends`: int64[k], where each micro-batch ends among the rows and the positions of all.
    `begins`, `lengths`: int64[n], the rows' positions among those of all, and their tokens. Positions of a micro-batch
    beyond its rows' are padding. `loss_mask`: uint8[m] of 0 and 1. `loss_weight`: float32[m]. `images`: of each
    micro-batch; None: not an image round.

    Whoever has the writer writes the tokens of row i to `tokens[token_begins[i]:]`, and calls `finish`.
    `tokens`: uint16 or uint32, the whole message; valid as long as the writer is. `ends`: where each micro-batch ends.
    """

    def __init__(
        self,
        *,
        step: int,
        first_round: int,
        sync_weights: bool,
        token_bytes: int,
        alignment: int,
        row_ends: NDArray[np.int64],
        position_ends: NDArray[np.int64],
        begins: NDArray[np.int64],
        lengths: NDArray[np.int64],
        loss_mask: NDArray[np.uint8],
        loss_weight: NDArray[np.float32] | None = None,
        images: Sequence[ImageSlices | None] = (),
    ) -> None:
        self._parts = [None if each is None else encode_images(each) for each in images or [None] * len(row_ends)]
        sizes = np.array([-1 if parts is None else sum(map(len, parts)) for parts in self._parts], dtype=np.int64)
        common = np.array([step, first_round, sync_weights, token_bytes, alignment])
        weighted = loss_weight is not None
        frames = np.empty((len(row_ends), loops.FRAME), dtype=np.int64)
        loops.lay_out(common, row_ends, position_ends, begins, lengths, loss_mask, weighted, sizes, frames)
        self.ends: tuple[int, ...] = tuple(frames[:, loops.END].tolist())
        self._message, self._room = _new_bytes(self.ends[-1])
        if lengths.sum() < position_ends[-1]:
            self._room.fill(0)
        loops.write_heads(self._room, common, row_ends, position_ends, lengths, weighted, sizes, frames)
        self._frames: list[list[int]] = frames.tolist()
        self._position_ends: list[int] = position_ends.tolist()
        self._mask, self._weight = loss_mask, loss_weight
        self.tokens: NDArray[Any] = self._room.view(f"<u{token_bytes}")
        # From positions among those of all to places in the message, the same for all rows of a micro-batch.
        shifts = frames[:, loops.TOKENS_AT] // token_bytes - np.concatenate(([0], position_ends[:-1]))
        self.token_begins = begins + np.repeat(shifts, np.diff(row_ends, prepend=0))

    def finish(self) -> bytes:
        """Write what is left, the checksums last. Nothing may be written afterwards."""
        room, begin = self._room, 0
        whole = memoryview(self._message)
        for frame, parts, end in zip(self._frames, self._parts, self._position_ends, strict=True):
            at, size = frame[loops.MASK_AT], -(-(end - begin) // 8)
            room[at : at + size] = np.packbits(self._mask[begin:end], bitorder="little")
            if self._weight is not None:
                at, size = frame[loops.WEIGHT_AT], (end - begin) * self._weight.itemsize
                room[at : at + size] = self._weight[begin:end].view(np.uint8)
            at = frame[loops.IMAGES_AT]
            for part in parts or ():
                room[at : at + len(part)] = np.frombuffer(part, dtype=np.uint8)
                at += len(part)
            covered = frame[loops.END] - frame[loops.SIZE] + CHECKSUM_BYTES
            digest = xxhash.xxh3_64_intdigest(whole[covered : frame[loops.END]])
            _DIGEST.pack_into(room.data, covered - _DIGEST.size, digest)
            begin = end
        return self._message


def _new_bytes(size: int) -> tuple[bytes, NDArray[np.uint8]]:
    """Bytes that nobody has seen yet, and their memory, to be written to while that is so; it holds anything.

    gRPC takes bytes and nothing else, and to make them of an array is to copy it.
    """
    made: bytes = _make(None, size)
    return made, np.frombuffer(_view(_address(made), size, _WRITABLE), dtype=np.uint8)
