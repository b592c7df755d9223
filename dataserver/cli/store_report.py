"""A store in figures, as text for a person; whoever found them out, a command or a server."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from dataserver.cli.store_histogram import histogram_lines

if TYPE_CHECKING:
    from dataserver.wire.store_info import PaddingInfo, ReadAmplificationInfo, StoreInfo

# More shards than these are counted; `--json` has them all.
_SHARDS_SHOWN: Final = 20

_MEANINGS: Final = {
    "empty": "no tokens",
    "no_target": "no 1 in loss_mask after the first token, which nothing predicts",
    "target_cut_off": "every target lies beyond max_length",
    "too_long": "longer than max_length",
    "image_too_long": "longer than max_length, with images, and such rows are never cut",
}
"""What a reason says, in words."""


def report_text(store: "StoreInfo") -> str:
    """All there is to say about a store."""
    if store.rendering is not None:
        return f"state        {store.rendering.text()}"
    if store.fault:
        return f"state        not rendered: {store.fault}"
    known = store.admission == "eager"
    lines = [
        *_contents(store),
        *(_served(store) if known else _unknown(store)),
        *(f"{'ignored':<13}{entry.path} ({entry.reason})" for entry in store.ignored),
        *(f"{'link':<13}{link.path} -> {link.target}" for link in store.links),
    ]
    if known:
        lines += [*_amplification(store.read_amplification), "", *histogram_lines(store), "", *_padding(store.padding)]
    return "\n".join(lines)


def _contents(store: "StoreInfo") -> Iterator[str]:
    """What lies on disk."""
    size = sum(shard.size for shard in store.shards)
    yield f"fingerprint  {store.fingerprint}"
    yield f"format       {store.format}, {_count(len(store.shards), 'shard')}, {bytes_text(size)}"
    for shard in store.shards[:_SHARDS_SHOWN] if len(store.shards) > 1 else ():
        yield f"             {shard.path}: {shard.rows:,} rows, {bytes_text(shard.size)}"
    if len(store.shards) > _SHARDS_SHOWN:
        yield f"             and {len(store.shards) - _SHARDS_SHOWN:,} more"
    yield "columns      " + ", ".join(f"{column.name}: {column.type}" for column in store.columns)
    yield f"rows         {store.rows:,}"
    if store.admission == "eager":
        mean = store.tokens / max(1, store.rows)
        yield f"tokens       {store.tokens:,}, {mean:,.0f} a row, longest row {store.longest_row:,}"
    if store.max_token >= 0 and store.admission == "eager":
        yield (
            f"token ids    up to {store.max_token:,} (row {store.max_token_row:,}), "
            f"{store.token_bytes} bytes each on the wire"
        )
    yield f"loss mask    {'its column' if store.loss_mask == 'column' else 'all tokens are targets'}"
    if any(column.name == "loss_weight" for column in store.columns):
        yield "weights      loss_weight, which a run uses or not as its source says"
    if (images := store.images) is not None:
        yield (
            f"images       {images.images:,} in {_count(images.rows, 'row')}, {images.patches:,} patches of "
            f"{images.patch_values:,} values, {images.pixel_bytes} bytes each on the wire; up to "
            f"{images.bytes_per_token:,} bytes a token (row {images.densest_row:,})"
        )


def _unknown(store: "StoreInfo") -> Iterator[str]:
    """What is not known of a store whose rows are checked as they are needed."""
    share = _percent(store.checked_rows, store.rows)
    yield f"admission    lazy: {_count(store.checked_rows, 'row')} checked so far ({share})"
    yield "tokens       not known yet, nor are lengths, drops and the highest token id"


def _served(store: "StoreInfo") -> Iterator[str]:
    """What of it runs get."""
    served = f"{_count(store.kept_rows, 'row')}, {store.kept_tokens:,} tokens"
    share = _percent(store.kept_tokens, store.tokens)
    yield f"served       {served} at max_length {store.max_length:,} ({share} of all tokens)"
    whole = store.cut_tokens + store.kept_tokens
    yield f"cut off      {store.cut_tokens:,} tokens ({_percent(store.cut_tokens, whole)} of the served rows)"
    if not store.dropped:
        yield "dropped      none"
    for reason, rows in sorted(store.dropped.items()):
        yield f"dropped      {_count(rows, 'row')}, {reason}: {_MEANINGS.get(reason, reason)}"


def _amplification(found: "ReadAmplificationInfo | None") -> Iterator[str]:
    if found is None:
        yield "reading      rows in any order cost no more than their own bytes, once they are in memory"
    else:
        yield (
            f"reading      a full shuffle decodes about {found.rows_per_row:,.0f} rows for each row served: "
            f"{found.blocks:,} blocks are {bytes_text(found.decoded_bytes)} decoded, the cache has "
            f"{bytes_text(found.cache_bytes)}. Use shuffle = block, write smaller row groups or "
            "uncompressed Arrow, or raise block_cache_bytes"
        )


def _padding(padding: "tuple[PaddingInfo, ...]") -> Iterator[str]:
    if not padding:
        yield "padding: too few tokens to tell"
        return
    yield f"padding, estimated from {padding[0].rows:,} rows in shuffled order"
    yield "micro-batch tokens   padded to the longest   packed"
    for size in padding:
        yield f"{size.micro_batch_tokens:>18,} {size.unpacked:>23.1%} {size.packed:>8.1%}"


def bytes_text(size: int) -> str:
    """A number of bytes, in the unit that suits it."""
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= factor:
            return f"{size / factor:.3g} {unit}"
    return f"{size} bytes"


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def _percent(part: int, whole: int) -> str:
    return f"{part / max(1, whole):.1%}"
