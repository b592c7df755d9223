"""Rows of shards that must be decoded first: Parquet, and Arrow that is compressed.

    rows ──grouped by block──> decode once (or cache) ──> slices

A decoded block is kept in the width of the wire with one byte a mask value, a third to a ninth
of what Arrow would hold.
"""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dataserver.errors import StoreDamagedError, StoreRefusedError
from dataserver.stores.ahead import BlockRef
from dataserver.stores.block_cache import BlockCache, BlockKey, DecodedBlock
from dataserver.stores.manifest import Manifest
from dataserver.stores.schema import LossMask, served_columns
from dataserver.stores.slices import Buffer, Slices, cut, gathered, grouped, ones
from dataserver.stores.tables import Blocks

if TYPE_CHECKING:
    import pyarrow as pa

    from dataserver.stores.ragged import Ragged


class BlockFile(Protocol):
    """The file of one shard."""

    def batches(self, block: int) -> Iterator["pa.RecordBatch"]:
        """Record batches of one block, by its number."""


class DecodedReader:
    """Reads one shard through decoded blocks; see `slices.ShardReader`.

    `lengths`: int32, tokens of each row of the shard, from the index. `owner`: see `BlockKey`.
    """

    def __init__(
        self,
        *,
        file: BlockFile,
        number: int,
        manifest: Manifest,
        blocks: Blocks,
        lengths: NDArray[np.int32],
        cache: BlockCache,
        owner: object,
    ) -> None:
        self._file = file
        self._number = number
        self._manifest = manifest
        self._name = manifest.shards[number].path
        self._blocks = blocks
        self._lengths = lengths
        self._cache = cache
        self._owner = owner
        self._needed_bytes = blocks.needed_bytes

    def read(
        self,
        rows: NDArray[np.int64],
        lengths: NDArray[np.int64],
        token_bytes: int,
        *,
        mask: bool,
        offsets: NDArray[np.int64] | None,
    ) -> Slices:
        """See `slices.ShardReader`. Each block that the rows touch is looked up once."""
        parts = self._parts(rows, lengths, token_bytes, mask=mask, offsets=offsets)
        return gathered(parts, len(rows))

    def _parts(
        self,
        rows: NDArray[np.int64],
        lengths: NDArray[np.int64],
        token_bytes: int,
        *,
        mask: bool,
        offsets: NDArray[np.int64] | None,
    ) -> Iterator[tuple[NDArray[np.int64], Slices]]:
        for number, at in grouped(self._blocks.of(rows)):
            ref = self._ref(number)
            with self._cache.block(ref.key, ref.needed_bytes, ref.decode) as block:
                begins = block.starts[rows[at] - self._blocks.row_begins[number]]
                if offsets is not None:
                    begins = begins + offsets[at]
                part = _read(block, begins, lengths[at], token_bytes, mask=mask)
            yield at, part

    def blocks(self, rows: NDArray[np.int64]) -> list[BlockRef]:
        """What a read of `rows` needs, in the order of first use."""
        numbers, first = np.unique(self._blocks.of(rows), return_index=True)
        return [self._ref(number) for number in numbers[np.argsort(first)].tolist()]

    def _ref(self, number: int) -> BlockRef:
        return BlockRef(
            store=self._manifest.fingerprint,
            cache=self._cache,
            key=BlockKey(owner=self._owner, shard=self._number, block=number),
            needed_bytes=int(self._needed_bytes[number]),
            decode=partial(self._decode, number),
        )

    def _decode(self, block: int) -> DecodedBlock:
        begin, end = self._blocks.row_begins[block : block + 2].tolist()
        starts = np.zeros(end - begin + 1, dtype=np.int64)
        np.cumsum(self._lengths[begin:end], out=starts[1:])
        tokens = np.empty(int(starts[-1]), dtype=f"u{self._manifest.token_bytes}")
        mask = np.empty(len(tokens), dtype=np.uint8) if self._manifest.loss_mask is LossMask.COLUMN else None
        row = 0
        try:
            for input_ids, loss_mask in self._columns(block):
                row_end = row + len(input_ids)
                if not np.array_equal(input_ids.lengths, np.diff(starts[row : row_end + 1])):
                    raise self._damage(block, f"rows {row} to {row_end} have other lengths than those admitted")
                span = slice(*starts[[row, row_end]].tolist())
                self._fill(block, input_ids, tokens[span], self._manifest.max_token)
                if mask is not None and loss_mask is not None:
                    self._fill(block, loss_mask, mask[span], 1)
                row = row_end
        except StoreRefusedError as error:
            raise StoreDamagedError(f"{error.message} It was whole when it was admitted.", **error.details) from error
        if row != end - begin:
            raise self._damage(block, f"it has {row} rows where {end - begin} were admitted")
        return DecodedBlock(tokens=tokens, mask=mask, starts=starts)

    def _columns(self, block: int) -> Iterator[tuple["Ragged", "Ragged | None"]]:
        """Tokens and masks of a block, piece by piece."""
        # Imported here: stores that are mapped are served without pyarrow.
        from dataserver.stores.ragged import ragged  # noqa: PLC0415

        names = served_columns(self._manifest.loss_mask)
        for batch in self._file.batches(block):
            columns = [ragged(batch.column(name), shard=self._name, column=name) for name in names]
            yield columns[0], columns[1] if len(columns) > 1 else None

    def _fill(self, block: int, column: "Ragged", out: NDArray[Any], highest: int) -> None:
        """Copy a column's values; what admission cannot have seen would wrap around in `out`."""
        values, nulls = column.flat()
        if len(values) != len(out) or nulls is not None:
            raise self._damage(block, "its lists differ from those admitted")
        if len(values) and not (values.min() >= 0 and values.max() <= highest):
            raise self._damage(block, f"it has a value outside of 0..{highest}, which were admitted")
        out[:] = values

    def _damage(self, block: int, problem: str) -> StoreDamagedError:
        return StoreDamagedError(
            f"Shard '{self._name}', block {block}: {problem}. Its bytes changed after it was admitted.",
            shard=self._name,
            block=block,
        )


def _read(
    block: DecodedBlock, begins: NDArray[np.int64], lengths: NDArray[np.int64], token_bytes: int, *, mask: bool
) -> Slices:
    """Copies, so that a block that is let go is not kept by them."""
    tokens: list[Buffer] = []
    if token_bytes:
        tokens = [bytes(piece) for piece in cut(block.tokens, begins, lengths, token_bytes)]
    if not mask:
        return Slices(tokens=tokens, loss_mask=[])
    if block.mask is None:
        return Slices(tokens=tokens, loss_mask=ones(lengths))
    return Slices(tokens=tokens, loss_mask=[bytes(piece) for piece in cut(block.mask, begins, lengths, 1)])
