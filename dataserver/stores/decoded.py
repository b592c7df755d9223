"""Rows of shards that must be decoded first: Parquet, and Arrow that is compressed.

    rows ──grouped by block──> decode once (or cache) ──> copied to where they are wanted

A decoded block is kept in the width of the wire with one byte a mask value, a third to a ninth
of what Arrow would hold.
"""

import threading
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from dataserver.errors import StoreDamagedError, StoreRefusedError
from dataserver.stores.ahead import BlockRef
from dataserver.stores.block_cache import BlockCache, BlockKey
from dataserver.stores.decoded_block import DecodedBlock
from dataserver.stores.destination import Destination, grouped, part_of
from dataserver.stores.image_table import ImageTable
from dataserver.stores.manifest import Manifest
from dataserver.stores.row_copy import copy_rows, fill_rows
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
        """See `destination.ShardReader`. Each block that the rows touch is looked up once."""
        blocks = self._blocks.of(rows)
        within = rows - self._blocks.row_begins[blocks]

        def copy(at: NDArray[np.intp], decoded: DecodedBlock) -> None:
            part = None if offsets is None else offsets[at]
            self._copy(decoded, within[at], lengths[at], into, part_of(numbers, at), offsets=part)

        groups = list(grouped(blocks))
        with self._cache.all_held([self._key(block) for block, _ in groups]) as held:
            if held is not None:
                for (_, at), decoded in zip(groups, held, strict=True):
                    copy(at, decoded)
                return
        for block, at in groups:
            ref = self._ref(block)
            with self._cache.block(ref.key, ref.needed_bytes, ref.decode) as decoded:
                copy(at, decoded)

    def _copy(
        self,
        block: DecodedBlock,
        rows: NDArray[np.int64],
        lengths: NDArray[np.int64],
        into: Destination,
        numbers: NDArray[np.int64],
        *,
        offsets: NDArray[np.int64] | None,
    ) -> None:
        """Rows of one block, numbered within it. A block that is let go is not kept by what is read of it."""
        begins = block.starts[rows] if offsets is None else block.starts[rows] + offsets
        at = into.at(numbers)
        pairs = ((block.tokens, into.tokens), (block.mask, into.loss_mask), (block.weights, into.loss_weight))
        for values, out in pairs:
            if values is not None and out is not None:
                copy_rows(values, begins, lengths, out, at, what=f"Shard '{self._name}'")
        if block.mask is None and into.loss_mask is not None:
            fill_rows(1, lengths, into.loss_mask, at)
        figures, images = self._manifest.images, block.images
        if into.pixel_bytes and images is not None and figures is not None:
            images.table.read(
                rows, into, numbers, grids=images.grids, pixels=images.pixels, patch_values=figures.patch_values
            )
            for number in numbers.tolist():
                into.grids[number], into.pixels[number] = bytes(into.grids[number]), bytes(into.pixels[number])

    def blocks(self, rows: NDArray[np.int64]) -> list[BlockRef]:
        """What a read of `rows` needs, in the order of first use."""
        numbers, first = np.unique(self._blocks.of(rows), return_index=True)
        return [self._ref(number) for number in numbers[np.argsort(first)].tolist()]

    def _key(self, number: int) -> BlockKey:
        return BlockKey(self._owner, self._number, number)

    def _ref(self, number: int, file: BlockFile | None = None) -> BlockRef:
        return BlockRef(
            store=self._manifest.fingerprint,
            cache=self._cache,
            key=self._key(number),
            needed_bytes=self._blocks.needed_bytes_of(number),
            decode=partial(self._decode, number, file or self.file),
        )

    def preload(self, block: int, file: BlockFile) -> None:
        """Decode a block out of `file`, which has its bytes at hand, if there is room for it."""
        self._ref(block, file).load_ahead()

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
    for out, kind in pairs:
        if out is not None:
            copy_rows(np.zeros(0, dtype=kind), into.begins, into.begins, out, into.begins, what="")
    if into.loss_mask is not None:
        fill_rows(1, into.begins, into.loss_mask, into.begins)
