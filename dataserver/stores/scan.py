"""The eager pass over a store: every byte is hashed, every row is checked and indexed, once.

    shard ──> block ──> first fault? ──> index arrays (appended to files as they come)
       └────> digest of every byte

Memory is bounded by a piece, whatever the store's size.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from dataserver.errors import StoreRefusedError
from dataserver.stores import shard_results
from dataserver.stores.columns import check_types
from dataserver.stores.discovery import Discovery
from dataserver.stores.far_files import open_far_file
from dataserver.stores.files import ByteSource, FileStamp, StoreFiles
from dataserver.stores.formats import read_columns
from dataserver.stores.image_index import ImageIndex
from dataserver.stores.index import Building
from dataserver.stores.manifest import WEIGHTS, Manifest, Shard, store_fingerprint
from dataserver.stores.piece_index import RunningFigures
from dataserver.stores.progress import ByteCounter, ReportBytes
from dataserver.stores.scan_block import Scan
from dataserver.stores.scan_far import scan_far_shard
from dataserver.stores.scan_near import scan_near_shard
from dataserver.stores.schema import LOSS_WEIGHT, PIXEL_VALUES, Column, LossMask, ShardSchema, check_schemas
from dataserver.stores.shard_results import ShardResults
from dataserver.stores.spans import HEADS, SPANS
from dataserver.stores.tables import BLOCKS, FIRST_TARGETS, LENGTHS, TARGETS


def scan_store(
    discovery: Discovery,
    *,
    store_path: str,
    loss_mask: LossMask,
    building: Building,
    results: ShardResults,
    progress: ReportBytes,
) -> Manifest:
    """Admit a store: its manifest, with the index arrays left in `building`.

    Large shards among several are kept in `results` as they are done, and taken from there if they were before.
    Raises `StoreRefusedError` for the first fault in row order.
    """
    sources = [discovery.files.open(path) for path in discovery.paths]
    columns = _check_columns(discovery.format, sources, store_path, loss_mask)
    passes = 1 if discovery.copies is None else 2
    counter = ByteCounter(passes * sum(source.size for source in sources), progress)
    images = ImageIndex(building) if PIXEL_VALUES in columns else None
    scan = Scan(discovery=discovery, loss_mask=loss_mask, building=building, hashed=counter.add, images=images)
    far = discovery.copies is None and any(source.local_path is None for source in sources)
    if images is not None:
        images.begin()
    weights = (WEIGHTS,) if LOSS_WEIGHT in columns else ()
    for name in (LENGTHS, FIRST_TARGETS, TARGETS, BLOCKS, *weights, *((SPANS, HEADS) if far else ())):
        building.append(name, np.zeros(0, dtype=np.int64))
    shards = tuple(_scan_shard(scan, results, number, path) for number, path in enumerate(discovery.paths))
    figures = scan.figures
    image_figures = None if images is None else images.figures()
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
        images=image_figures,
    )


def _check_columns(shard_format: str, sources: list[ByteSource], store_path: str, loss_mask: LossMask) -> set[str]:
    """The names of all columns, when the shards have the right ones."""
    schemas = [
        ShardSchema(path=source.name, columns=columns)
        for source in sources
        if (columns := _columns(shard_format, source, loss_mask)) is not None
    ]
    check_schemas(store_path, schemas, loss_mask)
    check_types(schemas, loss_mask)
    return {name for schema in schemas for name in schema.names}


def _columns(shard_format: str, source: ByteSource, loss_mask: LossMask) -> tuple[Column, ...] | None:
    if source.local_path is None and shard_format != "json":
        return open_far_file(shard_format, source).columns
    return read_columns(shard_format, source, loss_mask)


def _scan_shard(scan: Scan, results: ShardResults, number: int, relative: str) -> Shard:
    stamp = scan.discovery.files.stat(relative)
    # Images are checked against, and counted with, those of the shards before.
    alone = len(scan.discovery.paths) == 1 or scan.discovery.copies is not None or scan.images is not None
    if alone or stamp.size < shard_results.WORTH_BYTES:
        return _scan_file(scan, number, relative)
    found = results.add_to(scan.building, scan.figures, number, relative, stamp)
    if found is not None:
        scan.hashed(stamp.size)
        return found
    with results.building() as building:
        part = replace(scan, building=building, first_row=scan.figures.rows, figures=RunningFigures())
        shard = _scan_file(part, number, relative)
        results.keep(building, shard, part.figures)
    # Scanned again if someone deleted the index in between: it may be deleted at any time.
    kept = results.add_to(scan.building, scan.figures, number, relative, shard.stamp)
    return kept or _scan_file(scan, number, relative)


def _scan_file(scan: Scan, number: int, relative: str) -> Shard:
    with _unchanged(scan.discovery.files, relative) as stamp:
        source = scan.discovery.files.open(relative)
        far = source.local_path is None and scan.discovery.copies is None
        return (scan_far_shard if far else scan_near_shard)(scan, number, source, stamp)


@contextmanager
def _unchanged(files: StoreFiles, relative: str) -> Iterator[FileStamp]:
    """Refuse a file that changes while it is scanned."""
    before = files.stat(relative)
    yield before
    after = files.stat(relative)
    if after != before or after.changed_ns != before.changed_ns:
        raise StoreRefusedError(
            f"Shard '{relative}' changed while it was being read. Admit a store when it is complete.", shard=relative
        )
