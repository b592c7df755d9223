"""How much more is decoded than served when rows are drawn from all over a store.

A row of Parquet, or of compressed Arrow, costs its whole block unless that is still in the cache.
"""

from dataclasses import dataclass

import numpy as np

from dataserver.stores.manifest import Manifest
from dataserver.stores.schema import LossMask
from dataserver.stores.tables import Tables


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadAmplification:
    """A store whose `blocks` take more bytes decoded than all of the cache.

    `rows_per_row`: about how many rows are decoded for each row served in a full shuffle. It is fewer
    where many rows are asked for together, because those of one block are decoded once.
    """

    blocks: int
    decoded_bytes: int
    cache_bytes: int
    rows_per_row: float


def read_amplification(manifest: Manifest, tables: Tables, cache_bytes: int) -> ReadAmplification | None:
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
    return ReadAmplification(
        blocks=len(rows),
        decoded_bytes=decoded_bytes,
        cache_bytes=cache_bytes,
        rows_per_row=float((rows**2).sum() / rows.sum()) * (1 - held / decoded_bytes),
    )
