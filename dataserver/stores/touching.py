"""The blocks of a lazily admitted store, checked when they are first needed.

    touch: bytes ──> first fault? ──> digests, lengths, first targets … ──> index
                                 └──> decoded while they are at hand

The rules and their messages are those of the eager pass. Only the class of the error differs: a store that is being
served is damaged, where one that is not yet served is refused.
"""

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dataserver.errors import StoreDamagedError, StoreRefusedError
from dataserver.stores.block_cache import BlockCache
from dataserver.stores.block_files import KEPT_BYTES, FarBlocks, HeldBlock
from dataserver.stores.decoded import DECODERS
from dataserver.stores.far_block import Fetched
from dataserver.stores.far_files import far_decoding_bytes
from dataserver.stores.image_index import ImageIndex
from dataserver.stores.lazy_index import MAX_TOKENS, LazyIndex
from dataserver.stores.manifest import WEIGHTS, Manifest
from dataserver.stores.piece_index import RunningFigures
from dataserver.stores.scan_block import BlockFigures, Where, scan_block
from dataserver.stores.schema import LossMask, selected_columns
from dataserver.stores.shard_rows import ShardRows
from dataserver.stores.spans import SPANS, span_record
from dataserver.stores.tables import BLOCK_FIELDS, BLOCKS, FIRST_TARGETS, LENGTHS, TARGETS, Blocks
from dataserver.stores.unknown_blocks import Touch, UnknownBlocksError

# A check makes some temporaries beside the bytes of a block: about 50 MiB for large blocks, in proportion for small.
_CHECK_BYTES = 50 << 20
_CHECK_TIMES = 8

# So many locks keep threads from checking the same block twice; other processes may, and find out the same.
_LOCKS = 64


@dataclass(slots=True, kw_only=True)
class _Collected:
    """What `scan_block` appends of one block; see `scan_block.Appends`."""

    arrays: dict[str, list[NDArray[Any]]]

    def append(self, name: str, array: NDArray[Any]) -> None:
        self.arrays[name].append(array)


@dataclass(slots=True, kw_only=True)
class _OneBlock:
    """A scan of a single block; see `scan_block.BlockScan`."""

    loss_mask: LossMask
    building: _Collected
    first_row: int
    images: ImageIndex | None = None
    figures: RunningFigures = field(default_factory=RunningFigures)


class Touching:
    """What is known of the blocks of one store, and how more becomes known. Safe to use from several threads."""

    def __init__(self, *, manifest: Manifest, index: LazyIndex, shard_rows: ShardRows, cache: BlockCache) -> None:
        self.index = index
        self._manifest = manifest
        self.shard_rows = shard_rows
        self._cache = cache
        self._locks = [threading.Lock() for _ in range(_LOCKS)]
        shards = [len(blocks.table) for blocks in index.tables.blocks]
        self._shard_begins = np.concatenate(([0], np.cumsum(shards, dtype=np.int64)))

    def blocks_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The block of each of `rows` (int64[n]), counted through the store."""
        return np.searchsorted(self.index.row_begins, rows, side="right") - 1

    @property
    def checked_rows(self) -> int:
        """Rows of the blocks that are known."""
        return int(np.diff(self.index.row_begins)[self.index.arrays.noted()].sum())

    def require(self, rows: NDArray[np.int64]) -> None:
        """Return if the blocks of `rows` are known; raises `UnknownBlocksError`."""
        self.require_blocks(self.blocks_of(rows), self.index.arrays.sure, self.index.arrays.knows, self.touch)

    def require_blocks(
        self,
        blocks: NDArray[np.int64],
        sure: Callable[[NDArray[np.int64]], NDArray[np.bool_]],
        knows: Callable[[int], bool],
        touch: Callable[[int], None],
    ) -> None:
        """`require` for whatever is to be known of blocks."""
        open_questions = np.unique(blocks[~sure(blocks)]).tolist()
        unknown = [block for block in open_questions if not knows(block)]
        if unknown:
            store = self._manifest.fingerprint
            raise UnknownBlocksError([Touch(store=store, block=block, make_known=touch) for block in unknown])

    def touch(self, block: int) -> None:
        """Check a block and fill in what it holds, unless it is known."""
        with self._locks[block % _LOCKS]:
            if not self.index.arrays.knows(block):
                self._check(block)

    def _check(self, block: int) -> None:
        shard = int(np.searchsorted(self._shard_begins, block, side="right")) - 1
        number = block - int(self._shard_begins[shard])
        reader = self.shard_rows.decoded(shard)
        file = reader.file
        if not isinstance(file, FarBlocks):
            raise TypeError(f"blocks of '{self._manifest.shards[shard].path}' are not read by ranges")
        stored = int(self.index.tables.blocks[shard].field("decoding_bytes")[number])
        with self._cache.room(stored + min(_CHECK_TIMES * stored, _CHECK_BYTES + KEPT_BYTES)):
            fetched = file.read_first(number)
            held = HeldBlock(file, fetched, self._manifest.served_columns(shard))
            try:
                with DECODERS:
                    self._fill(block, shard, number, fetched, held)
            except StoreRefusedError as error:
                raise StoreDamagedError(error.message, **error.details) from error
            with suppress(StoreDamagedError):  # told to whoever reads the block
                reader.preload(number, held)

    def _fill(self, block: int, shard: int, number: int, fetched: list[Fetched], held: HeldBlock) -> None:
        first_row, blocks = int(self.index.row_begins[block]), self.index.tables.blocks[shard]
        where = Where(
            shard=self._manifest.shards[shard].path,
            unit="row group" if self._manifest.format == "parquet" else "record batch",
            block=number,
            row=int(blocks.row_begins[number]),
        )
        columns = [column.name for column in self._manifest.shards[shard].columns]
        names = selected_columns(columns, self._manifest.loss_mask)
        collected = _Collected(arrays={name: [] for name in (LENGTHS, FIRST_TARGETS, TARGETS, WEIGHTS)})
        scan = _OneBlock(loss_mask=self._manifest.loss_mask, building=collected, first_row=first_row)
        found = scan_block(scan, where, held.checked(number, names))
        arrays = {name: np.concatenate(parts or [np.zeros(0)]) for name, parts in collected.arrays.items()}
        arrays[BLOCKS] = record = self._record(shard, blocks.table[number], found, fetched)
        needed = int(Blocks(table=record.reshape(1, -1), row_begins=np.array([0, found.rows])).needed_bytes[0])
        if needed > self._cache.limit_bytes:
            raise self._too_large(shard, number, needed)
        arrays[SPANS] = np.array([span_record(shard, number, span, data) for span, data in fetched], dtype="<i8")
        arrays[MAX_TOKENS] = np.array([scan.figures.max_token, first_row + scan.figures.max_token_row])
        self.index.arrays.fill(block, arrays)

    def _record(
        self, shard: int, record: NDArray[np.int64], found: BlockFigures, fetched: Iterable[Fetched]
    ) -> NDArray[np.int64]:
        """The block's record as an eager pass would have it."""
        decoding = far_decoding_bytes(
            self._manifest.format,
            columns=len(self._manifest.served_columns(shard)),
            largest_batch_bytes=found.largest_bytes,
            encoded_bytes=sum(end - begin for (begin, end), _ in fetched),
        )
        filled = record.copy()
        for name, value in (
            ("tokens", found.tokens),
            ("extra_bytes", found.extra_bytes),
            ("decoding_bytes", decoding),
        ):
            filled[BLOCK_FIELDS.index(name)] = value
        return filled

    def _too_large(self, shard: int, number: int, needed: int) -> StoreDamagedError:
        path = self._manifest.shards[shard].path
        return StoreDamagedError(
            f"Shard '{path}', block {number}: decoding it takes up to {needed} bytes, more than block_cache_bytes = "
            f"{self._cache.limit_bytes}. Raise block_cache_bytes, or write the shard in smaller pieces.",
            shard=path,
            block=number,
        )
