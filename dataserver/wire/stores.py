"""What the services tell about stores, as values."""

from collections.abc import Mapping
from dataclasses import dataclass

from dataserver.v1 import store_service_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnInfo:
    """A column of a store and its Arrow type."""

    name: str
    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardInfo:
    """A file of a store: path relative to it, bytes, rows, XXH3-128 in hex."""

    path: str
    size: int
    rows: int
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class IgnoredPathInfo:
    """A path of a store that was passed over, and why."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkInfo:
    """A file of a store that is a link out of it, and the file that is read."""

    path: str
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthBucketInfo:
    """How many rows have a length in [begin, end)."""

    begin: int
    end: int
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreInfo:
    """A store as it was admitted; drops and served tokens are for the `max_length` that was asked."""

    name: str
    fingerprint: str
    format: str
    rows: int
    tokens: int
    longest_row: int
    max_token: int
    token_bytes: int
    columns: tuple[ColumnInfo, ...]
    shards: tuple[ShardInfo, ...]
    ignored: tuple[IgnoredPathInfo, ...]
    dropped: Mapping[str, int]
    kept_rows: int
    kept_tokens: int
    cut_tokens: int
    length_histogram: tuple[LengthBucketInfo, ...]
    links: tuple[LinkInfo, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleInfo:
    """One row of a store, for people. `reason` says why it is not served; it is empty where it is."""

    row: int
    kept: bool
    reason: str
    input_ids: tuple[int, ...]
    loss_mask: tuple[bool, ...]


def store_from_proto(message: store_service_pb2.Store) -> StoreInfo:
    """Read a store."""
    return StoreInfo(
        name=message.name,
        fingerprint=message.fingerprint,
        format=message.format,
        rows=message.rows,
        tokens=message.tokens,
        longest_row=message.longest_row,
        max_token=message.max_token,
        token_bytes=message.token_bytes,
        columns=tuple(ColumnInfo(name=column.name, type=column.type) for column in message.columns),
        shards=tuple(
            ShardInfo(path=shard.path, size=shard.size, rows=shard.rows, digest=shard.digest)
            for shard in message.shards
        ),
        ignored=tuple(IgnoredPathInfo(path=ignored.path, reason=ignored.reason) for ignored in message.ignored),
        dropped=dict(message.dropped),
        kept_rows=message.kept_rows,
        kept_tokens=message.kept_tokens,
        cut_tokens=message.cut_tokens,
        length_histogram=tuple(
            LengthBucketInfo(begin=bucket.begin, end=bucket.end, rows=bucket.rows)
            for bucket in message.length_histogram
        ),
        links=tuple(LinkInfo(path=link.path, target=link.target) for link in message.links),
    )


def sample_from_proto(message: store_service_pb2.Sample) -> SampleInfo:
    """Read a row."""
    return SampleInfo(
        row=message.row,
        kept=message.kept,
        reason=message.reason,
        input_ids=tuple(message.input_ids),
        loss_mask=tuple(message.loss_mask),
    )
