"""Rows of shards that must be decoded first: Parquet, and Arrow that is compressed.

    rows ──grouped by block──> decode once (or cache) ──> copied to where they are wanted

A decoded block is kept in the width of the wire with one byte a mask value, a third to a ninth
of what Arrow would hold.
"""

import threading
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from dataserver.errors import StoreDamagedError, StoreRefusedError
from dataserver.stores.ahead import BlockRef
from dataserver.stores.block_cache import BlockCache, BlockKey
from dataserver.stores.decoded_block import DecodedBlock
from dataserver.stores.destination import Destination, part_of
from dataserver.stores.image_table import ImageTable
from dataserver.stores.manifest import Manifest
from dataserver.stores.row_copy import copy_rows_of, fill_rows
from dataserver.stores.tables import Blocks

if TYPE_CHECKING:
    import pyarrow as pa


# Blocks that are decoded at once, while any number is being fetched. Decoders hold the interpreter's lock between two
# columns: many of them, woken together by a burst of answers, would keep it from the thread that encodes.
DECODERS = threading.BoundedSemaphore(2)


class BlockFile(Protocol):
    """The file of one shard."""

    def batches(self, block: int) -> Iterator["pa.RecordBatch"]:
        """Record batches of one block, by its number; what is far away is fetched before it returns."""


class DecodedReader:
    """Reads one shard through decoded blocks; see `destination.ShardReader`.

    `lengths`: int32, tokens of each row of the shard, and `images` those that have any, from the index. `owner`: see
    `BlockKey`.
    """

    def __init__(
        self,
        *,
        file: BlockFile,
        number: int,
        manifest: Manifest,
        blocks: Blocks,
        lengths: NDArray[np.int32],
        images: ImageTable,
        cache: BlockCache,
        owner: object,
    ) -> None:
        self.file = file
        self._number = number
        self._manifest = manifest
        self._name = manifest.shards[number].path
        self._blocks = blocks
        self._lengths = lengths
        self._images = images
        self._cache = cache
        self._owner = owner

    def read(
        self,
        rows: NDArray[np.int64],
        lengths: NDArray[np.int64],
        into: Destination,
        numbers: NDArray[np.int64] | None,
        *,
        offsets: NDArray[np.int64] | None,
    ) -> None:
        """See `destination.ShardReader`. Each block that the rows touch is looked up once, and all of them at once."""
        blocks, which = np.unique(self._blocks.of(rows), return_inverse=True)
        within = rows - self._blocks.row_begins[blocks[which]]

        def copy(found: Sequence[DecodedBlock], each: NDArray[np.int64], at: NDArray[np.intp]) -> None:
            part = None if offsets is None else offsets[at]
            self._copy(found, each, within[at], lengths[at], into, part_of(numbers, at), offsets=part)

        with self._cache.all_held([self._key(block) for block in blocks.tolist()]) as held:
            if held is not None:
                copy(held, which, np.arange(len(rows)))
                return
        for number, ref in enumerate(self._refs(blocks)):
            at = np.flatnonzero(which == number)
            with self._cache.block(ref.key, ref.needed_bytes, ref.decode) as decoded:
                copy([decoded], np.zeros(len(at), dtype=np.int64), at)

    def _copy(  # noqa: PLR0917
        self,
        blocks: Sequence[DecodedBlock],
        which: NDArray[np.int64],
        rows: NDArray[np.int64],
        lengths: NDArray[np.int64],
        into: Destination,
        numbers: NDArray[np.int64],
        *,
        offsets: NDArray[np.int64] | None,
    ) -> None:
        """Rows of blocks: row `rows[i]` of `blocks[which[i]]`. A block that is let go is not kept by what is read."""
        if not blocks:
            return
        what, at, begins = f"Shard '{self._name}'", into.at(numbers), np.empty(len(rows), dtype=np.int64)
        ones = np.ones_like(rows)
        copy_rows_of([block.starts for block in blocks], which, rows, ones, begins, np.arange(len(rows)), what=what)
        if offsets is not None:
            begins += offsets
        for name, out in (("tokens", into.tokens), ("mask", into.loss_mask), ("weights", into.loss_weight)):
            values = [array for block in blocks if (array := getattr(block, name)) is not None]
            if values and out is not None:
                copy_rows_of(values, which, begins, lengths, out, at, what=what)
        if blocks[0].mask is None and into.loss_mask is not None:
            fill_rows(1, lengths, into.loss_mask, at)
        if into.pixel_bytes:
            for number, block in enumerate(blocks):
                mine = np.flatnonzero(which == number)
                self._copy_images(block, rows[mine], into, numbers[mine])

    def _copy_images(
        self, block: DecodedBlock, rows: NDArray[np.int64], into: Destination, numbers: NDArray[np.int64]
    ) -> None:
        figures, images = self._manifest.images, block.images
        if images is not None and figures is not None:
            images.table.read(
                rows, into, numbers, grids=images.grids, pixels=images.pixels, patch_values=figures.patch_values
            )
            for number in numbers.tolist():
                into.grids[number], into.pixels[number] = bytes(into.grids[number]), bytes(into.pixels[number])

    def blocks(self, rows: NDArray[np.int64]) -> list[BlockRef]:
        """What a read of `rows` needs, in the order of first use."""
        numbers, first = np.unique(self._blocks.of(rows), return_index=True)
        return self._refs(numbers[np.argsort(first)])

    def _key(self, number: int) -> BlockKey:
        return BlockKey(self._owner, self._number, number)

    def _refs(self, numbers: NDArray[np.int64], file: BlockFile | None = None) -> list[BlockRef]:
        file, store = file or self.file, self._manifest.fingerprint
        return [
            BlockRef(
                store=store,
                cache=self._cache,
                key=self._key(number),
                needed_bytes=needed_bytes,
                decode=partial(self._decode, number, file),
            )
            for number, needed_bytes in zip(
                numbers.tolist(), self._blocks.needed_bytes_of(numbers).tolist(), strict=True
            )
        ]

    def preload(self, block: int, file: BlockFile) -> None:
        """Decode a block out of `file`, which has its bytes at hand, if there is room for it."""
        self._refs(np.array([block]), file)[0].load_ahead()

    def _decode(self, block: int, file: BlockFile) -> DecodedBlock:
        # Imported here: stores that are mapped are served without pyarrow.
        from dataserver.stores.decode_block import decode_block  # noqa: PLC0415

        first, last = self._blocks.row_begins[block : block + 2].tolist()
        try:
            batches = file.batches(block)
            with DECODERS:
                return decode_block(
                    batches,
                    shard=self._name,
                    manifest=self._manifest,
                    lengths=self._lengths[first:last],
                    images=self._images.within(first, last),
                    damage=partial(self._damage, block),
                )
        except StoreRefusedError as error:
            raise StoreDamagedError(f"{error.message} It was whole when it was admitted.", **error.details) from error

    def _damage(self, block: int, problem: str) -> StoreDamagedError:
        return StoreDamagedError(
            f"Shard '{self._name}', block {block}: {problem}. Its bytes changed after it was admitted.",
            shard=self._name,
            block=block,
        )


def prepare_decoded(token_bytes: int, into: Destination) -> None:
    """Have what copies rows of decoded blocks, whose tokens have `token_bytes`, compiled; `into` has no room."""
    pairs = ((into.tokens, f"<u{token_bytes}"), (into.loss_mask, "u1"), (into.loss_weight, "<f4"))
    none = into.begins
    for out, kind in pairs:
        if out is not None:
            for blocks in (1, 2):
                copy_rows_of([np.zeros(0, dtype=kind)] * blocks, none, none, none, out, none, what="")
    if into.loss_mask is not None:
        fill_rows(1, none, into.loss_mask, none)
