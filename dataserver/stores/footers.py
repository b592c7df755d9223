"""The footers of a store, and nothing else of it: how many rows each block has, and where its bytes lie.

    shard ──head──> columns, blocks ──> blocks.i8, spans.i8, heads.u1      (the same arrays as of an eager pass)
                                        lengths.i4 …                       (as long as they will be, nothing filled in)

What a row holds is found out when its block is first needed: see `touching`.
"""

import re
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import xxhash
from numpy.typing import NDArray

from dataserver.errors import StoreRefusedError
from dataserver.stores.admission import MAX_TOKEN
from dataserver.stores.columns import check_types
from dataserver.stores.discovery import Discovery
from dataserver.stores.far_block import FarBlock
from dataserver.stores.far_files import open_far_file
from dataserver.stores.files import ByteSource
from dataserver.stores.index import Building
from dataserver.stores.layout import NOWHERE
from dataserver.stores.lazy_index import write_places
from dataserver.stores.manifest import WEIGHTS, Manifest, Shard, store_fingerprint
from dataserver.stores.schema import (
    IMAGE_COLUMNS,
    INPUT_IDS,
    LOSS_WEIGHT,
    Admission,
    Column,
    LossMask,
    ShardSchema,
    check_schemas,
    selected_columns,
)
from dataserver.stores.spans import HEADS
from dataserver.stores.tables import BLOCK_FIELDS

# Footers that are read at once: each takes a request or two, and the storage's latency.
_READERS = 16

# Of each record batch of an Arrow file some hundred bytes are wanted: one request brings them.
_READ_BYTES = 1 << 13

_NARROW = re.compile(r"\bu?int(8|16)\b")
_HIGHEST_NARROW = 2**16 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Footer:
    """What one shard tells of itself."""

    shard: Shard
    blocks: Sequence[FarBlock]
    head: bytes


def read_footers(discovery: Discovery, *, store_path: str, loss_mask: LossMask, building: Building) -> Manifest:
    """The manifest of a store whose rows nobody looked at, with its index left in `building`.

    Raises `StoreRefusedError` for what footers show, and for a store that has to be admitted eagerly.
    """
    if discovery.format == "json":
        raise _eagerly(store_path, "JSON Lines have no footers that tell how many rows there are")
    with ThreadPoolExecutor(_READERS, thread_name_prefix="dataserver-footers") as pool:
        footers = list(pool.map(lambda path: _read_footer(discovery, path, loss_mask), discovery.paths))
    shards = tuple(each.shard for each in footers)
    schemas = [ShardSchema(path=each.path, columns=each.columns) for each in shards]
    check_schemas(store_path, schemas, loss_mask)
    check_types(schemas, loss_mask)
    names = {column.name for shard in shards for column in shard.columns}
    if names & set(IMAGE_COLUMNS):
        raise _eagerly(store_path, "how large images are is only known when all of them were seen")
    for each in footers:
        building.append(HEADS, np.frombuffer(each.head, np.uint8))
    weighted = LOSS_WEIGHT in names
    digests = write_places(building, _block_records(footers), _span_records(footers), weighted=weighted)
    return Manifest(
        format=discovery.format,
        loss_mask=loss_mask,
        fingerprint=store_fingerprint(shards, loss_mask),
        shards=shards,
        rows=sum(shard.rows for shard in shards),
        tokens=0,
        longest_row=MAX_TOKEN,
        max_token=_highest_token(column for shard in shards for column in shard.columns),
        max_token_row=0,
        length_histogram=(),
        array_digests=digests | ({WEIGHTS: ""} if weighted else {}),
        admission=Admission.LAZY,
    )


def _read_footer(discovery: Discovery, path: str, loss_mask: LossMask) -> _Footer:
    stamp = discovery.files.stat(path)
    source = discovery.files.open(path)
    file = open_far_file(discovery.format, _Ahead(source))
    names = [column.name for column in file.columns]
    blocks = tuple(file.blocks(selected_columns(names, loss_mask)))
    file.check_end(len(blocks))
    span, head = file.head
    digest = xxhash.xxh3_128(head)
    digest.update(repr([(block.rows, block.spans) for block in blocks]).encode())
    if source.local_path is None:
        # An object's version stands for its contents; a file on a disk has none that means the same on another one.
        digest.update(stamp.version.encode())
    shard = Shard(
        path=path,
        stamp=stamp,
        rows=sum(block.rows for block in blocks),
        digest=digest.hexdigest(),
        columns=file.columns,
        layout=None,
        copy_digest="",
        head=span,
    )
    return _Footer(shard=shard, blocks=blocks, head=head)


def _block_records(footers: Sequence[_Footer]) -> NDArray[np.int64]:
    """int64[b, 13]: nothing is known of the contents but how many bytes they take as they are stored."""
    records = [
        (number, block.rows, block.begin, block.end, *NOWHERE.positions, 0, 0, _stored_bytes(block))
        for number, footer in enumerate(footers)
        for block in footer.blocks
    ]
    return np.array(records, dtype="<i8").reshape(-1, len(BLOCK_FIELDS))


def _span_records(footers: Sequence[_Footer]) -> NDArray[np.int64]:
    """int64[s, 6], without digests."""
    records = [
        (number, at, *span, 0, 0)
        for number, footer in enumerate(footers)
        for at, block in enumerate(footer.blocks)
        for span in block.spans
    ]
    return np.array(records, dtype="<i8").reshape(-1, 6)


def _stored_bytes(block: FarBlock) -> int:
    return sum(end - begin for begin, end in block.spans)


def _highest_token(columns: Iterable[Column]) -> int:
    """The highest token id that the types of all shards' columns can hold."""
    types = [column.type for column in columns if column.name == INPUT_IDS]
    return _HIGHEST_NARROW if all(_NARROW.search(name) for name in types) else MAX_TOKEN


def _eagerly(store_path: str, reason: str) -> StoreRefusedError:
    return StoreRefusedError(
        f"Pretokenized dataset at '{store_path}' cannot be admitted lazily: {reason}. Leave admission at eager; "
        "`dataserver store index` does the pass ahead of time."
    )


class _Ahead:
    """A `files.ByteSource` that reads a little more than is asked, for one thread that goes through the file."""

    local_path = None

    def __init__(self, source: ByteSource) -> None:
        self._source = source
        self.name = source.name
        self.size = source.size
        self._begin = 0
        self._held = b""

    def read(self, begin: int, end: int) -> bytes:
        if not self._begin <= begin <= end <= self._begin + len(self._held):
            self._begin = begin
            self._held = self._source.read(begin, min(self.size, max(end, begin + _READ_BYTES)))[:]
        return self._held[begin - self._begin : end - self._begin]
