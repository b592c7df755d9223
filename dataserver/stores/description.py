"""A store in figures, for people: the same ones whether a command reads the files or a server is asked."""

from dataserver.run_spec import LongRows
from dataserver.stores.padding import estimate_padding
from dataserver.stores.schema import Admission
from dataserver.stores.selection import Figures
from dataserver.stores.store import Store
from dataserver.wire.store_info import (
    ColumnInfo,
    IgnoredPathInfo,
    LengthBucketInfo,
    LinkInfo,
    ShardInfo,
    StoreInfo,
)

_NOTHING_KNOWN = Figures(rows=0, kept_tokens=0, cut_tokens=0, long_rows=0, dropped={})


def describe_store(
    name: str, store: Store, max_length: int | None, long_rows: LongRows = LongRows.TRUNCATE
) -> StoreInfo:
    """All there is to tell about `store`, with samples of at most `max_length`; None: as long as the longest row.

    Of a lazily admitted store, what depends on its rows is 0 or empty.
    """
    lazy = store.admission is Admission.LAZY
    longest = max_length or (0 if lazy else max(store.longest_row, 1))
    figures = _NOTHING_KNOWN if lazy else store.figures(longest, long_rows)
    return StoreInfo(
        name=name,
        fingerprint=store.fingerprint,
        format=store.format,
        rows=store.rows,
        tokens=store.tokens,
        admission=str(store.admission),
        checked_rows=store.checked_rows,
        longest_row=0 if lazy else store.longest_row,
        max_token=0 if lazy else store.max_token,
        max_token_row=store.max_token_row,
        token_bytes=store.token_bytes,
        loss_mask=str(store.loss_mask),
        columns=tuple(ColumnInfo(name=column.name, type=column.type) for column in store.columns),
        shards=tuple(ShardInfo(path=s.path, size=s.size, rows=s.rows, digest=s.digest) for s in store.shards),
        ignored=tuple(IgnoredPathInfo(path=ignored.path, reason=ignored.reason) for ignored in store.ignored),
        links=tuple(LinkInfo(path=path, target=target) for path, target in store.links),
        max_length=longest,
        dropped=figures.dropped,
        kept_rows=figures.rows,
        kept_tokens=figures.kept_tokens,
        cut_tokens=figures.cut_tokens,
        length_histogram=tuple(
            LengthBucketInfo(begin=bucket.begin, end=bucket.end, rows=bucket.rows)
            for bucket in store.length_histogram()
        ),
        padding=() if lazy else estimate_padding(store.tables, longest, long_rows),
        read_amplification=store.read_amplification(),
        images=store.images,
    )
