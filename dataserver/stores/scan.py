"""The eager pass over a store: every byte is hashed, every row is checked and indexed, once.

    shard ──> block ──> first fault? ──> index arrays (appended to files as they come)
       └────> digest of every byte

Memory is bounded by a piece, whatever the store's size.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from dataserver.errors import StoreRefusedError
from dataserver.stores.discovery import Discovery
from dataserver.stores.far_files import open_far_file
from dataserver.stores.files import ByteSource, FileStamp, StoreFiles
from dataserver.stores.formats import read_columns
from dataserver.stores.index import Building
from dataserver.stores.manifest import Manifest, Shard, store_fingerprint
from dataserver.stores.progress import ReportBytes
from dataserver.stores.scan_block import Scan
from dataserver.stores.scan_far import scan_far_shard
from dataserver.stores.scan_near import scan_near_shard
from dataserver.stores.schema import Column, LossMask, ShardSchema, check_schemas
from dataserver.stores.spans import HEADS, SPANS
from dataserver.stores.tables import BLOCKS, FIRST_TARGETS, LENGTHS, TARGETS


def scan_store(
    discovery: Discovery, *, store_path: str, loss_mask: LossMask, building: Building, progress: ReportBytes
) -> Manifest:
    """Admit a store: its manifest, with the index arrays left in `building`.

    Raises `StoreRefusedError` for the first fault in row order.
    """
    sources = [discovery.files.open(path) for path in discovery.paths]
    _check_columns(discovery.format, sources, store_path, loss_mask)
    passes = 1 if discovery.copies is None else 2
    scan = Scan(
        discovery=discovery,
        loss_mask=loss_mask,
        building=building,
        progress=progress,
        bytes_total=passes * sum(source.size for source in sources),
    )
    far = discovery.copies is None and any(source.local_path is None for source in sources)
    for name in (LENGTHS, FIRST_TARGETS, TARGETS, BLOCKS, *((SPANS, HEADS) if far else ())):
        building.append(name, np.zeros(0, dtype=np.int64))
    shards = tuple(_scan_shard(scan, number, path) for number, path in enumerate(discovery.paths))
    figures = scan.figures
    return Manifest(
        format=discovery.format,
        loss_mask=loss_mask,
        fingerprint=store_fingerprint(shards, loss_mask),
        shards=shards,
        rows=figures.rows,
        tokens=figures.tokens,
        longest_row=figures.longest_row,
        max_token=figures.max_token,
        max_token_row=figures.max_token_row,
        length_histogram=figures.histogram(),
        array_digests=building.digests(),
    )


def _check_columns(shard_format: str, sources: list[ByteSource], store_path: str, loss_mask: LossMask) -> None:
    schemas = [
        ShardSchema(path=source.name, columns=columns)
        for source in sources
        if (columns := _columns(shard_format, source, loss_mask)) is not None
    ]
    check_schemas(store_path, schemas, loss_mask)


def _columns(shard_format: str, source: ByteSource, loss_mask: LossMask) -> tuple[Column, ...] | None:
    if source.local_path is None and shard_format != "json":
        return open_far_file(shard_format, source).columns
    return read_columns(shard_format, source, loss_mask)


def _scan_shard(scan: Scan, number: int, relative: str) -> Shard:
    with _unchanged(scan.discovery.files, relative) as stamp:
        source = scan.discovery.files.open(relative)
        far = source.local_path is None and scan.discovery.copies is None
        return (scan_far_shard if far else scan_near_shard)(scan, number, source, stamp)


@contextmanager
def _unchanged(files: StoreFiles, relative: str) -> Iterator[FileStamp]:
    """Refuse a file that changes while it is scanned."""
    before = files.stat(relative)
    yield before
    if files.stat(relative) != before:
        raise StoreRefusedError(
            f"Shard '{relative}' changed while it was being read. Admit a store when it is complete.", shard=relative
        )
