"""How much more is decoded than served when rows are drawn from all over a store.

A row of Parquet, or of compressed Arrow, costs its whole block unless that is still in the cache.
"""

import numpy as np

from dataserver.stores.manifest import Manifest
from dataserver.stores.schema import LossMask
from dataserver.stores.tables import Tables
from dataserver.wire.store_info import ReadAmplificationInfo


def read_amplification(manifest: Manifest, tables: Tables, cache_bytes: int) -> ReadAmplificationInfo | None:
    """The amplification of a store that has the cache for itself; None where all of it fits, or is mapped.

    A row drawn at random lies in block b with the share `rows_b / rows`, and then costs `rows_b` rows
    unless b is in the cache, whose odds are those of any byte of the store: `held / decoded_bytes`,
    with `held` what the cache keeps beside the room for decoding.
    """
    blocks = [blocks for shard, blocks in zip(manifest.shards, tables.blocks, strict=True) if shard.layout is None]
    if not blocks:
        return None
    rows = np.concatenate([found.field("rows") for found in blocks]).astype(np.float64)
    tokens = sum(int(found.field("tokens").sum()) for found in blocks)
    token_bytes = manifest.token_bytes + (manifest.loss_mask is LossMask.COLUMN)
    decoded_bytes = tokens * token_bytes + (int(rows.sum()) + len(rows)) * 8
    if decoded_bytes <= cache_bytes:
        return None
    held = max(0, cache_bytes - max(int(found.needed_bytes.max(initial=0)) for found in blocks))
    return ReadAmplificationInfo(
        blocks=len(rows),
        decoded_bytes=decoded_bytes,
        cache_bytes=cache_bytes,
        rows_per_row=float((rows**2).sum() / rows.sum()) * (1 - held / decoded_bytes),
    )
