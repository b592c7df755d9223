"""How large a micro-batch can get, known before a run begins."""

from collections.abc import Sequence
from typing import Final

from dataserver.batching.table import SourceTable
from dataserver.errors import InvalidSpecError
from dataserver.run_spec import BatchSpec
from dataserver.stores import Store

# Step, round, checksum, fill and the field headers of a micro-batch.
MESSAGE_OVERHEAD_BYTES: Final = 1024


def largest_message_bytes(
    batch: BatchSpec, token_bytes: int, *, weighted: bool = False, image_bytes_per_token: int = 0
) -> int:
    """Bound on the bytes of one micro-batch.

    Tokens, one mask bit each, four bytes of weight, and lengths: four bytes cover at least two tokens, as no sample is
    shorter. Images: no row has more than `image_bytes_per_token` for each of its tokens, so no bin has.
    """
    tokens = batch.micro_batch_tokens
    token_bytes += 4 * weighted + image_bytes_per_token
    return tokens * token_bytes + -(-tokens // 8) + 2 * tokens + MESSAGE_OVERHEAD_BYTES


def check_message_size(batch: BatchSpec, table: SourceTable, stores: Sequence[Store], max_message_bytes: int) -> None:
    """Raise `InvalidSpecError` when a largest micro-batch would not fit a message."""
    densest = max((_image_density(store, table) for store in stores), default=0)
    largest = largest_message_bytes(batch, table.token_bytes, weighted=table.is_weighted, image_bytes_per_token=densest)
    if largest <= max_message_bytes:
        return
    images = ""
    if densest:
        store = max(stores, key=lambda store: _image_density(store, table))
        row = 0 if store.images is None else store.images.densest_row
        images = f" and up to {densest} bytes of images a token (row {row} of '{store.path}')"
    raise InvalidSpecError(
        f"micro_batch_tokens = {batch.micro_batch_tokens} at {table.token_bytes} bytes a token{images} makes "
        f"messages of up to {largest} bytes, above the server's max_message_bytes = {max_message_bytes}: "
        "lower the one or raise the other"
    )


def _image_density(store: Store, table: SourceTable) -> int:
    """Bytes of images for each token, at most, in the width that is served."""
    if store.images is None or table.images is None:
        return 0
    return store.images.bytes_per_token * (table.images.pixel_bytes // store.images.pixel_bytes)
