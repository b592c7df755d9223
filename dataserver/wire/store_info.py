"""What there is to tell about stores, as values; needs nothing of protobuf, whose import takes its time."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


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
class PaddingInfo:
    """Shares of micro-batches of one size that hold no token, estimated from `rows` served rows or pieces of them.

    `unpacked`: as many rows as fit, padded to the longest of them. `packed`: rows packed end to end.
    """

    micro_batch_tokens: int
    rows: int
    unpacked: float
    packed: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadAmplificationInfo:
    """A store whose `blocks` take more bytes decoded than the cache has.

    `rows_per_row`: about how many rows are decoded for each row served in a full shuffle.
    """

    blocks: int
    decoded_bytes: int
    cache_bytes: int
    rows_per_row: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFigures:
    """The images of a store. `rows`: those that have any; the first is `first_row`.

    `patch_values`: values of a patch. `pixel_bytes`: bytes of one on the wire, 2 where every shard has float16, else 4.
    `bytes_per_token`: at most so many bytes of images for each token of a row, as in `densest_row`.
    """

    rows: int
    first_row: int
    images: int
    patches: int
    patch_values: int
    pixel_bytes: int
    bytes_per_token: int
    densest_row: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderingInfo:
    """How far conversations are on their way to being a store.

    `stage`: `queued`, `waiting`, `fetching`, `reading`, `rendering` or `checking`. `done` of `total`: parts while
    rendering, else bytes; while queued, those of the store before it; a `total` of 0 is not known. `rows`, `tokens`:
    what is rendered, by earlier processes too; the rates are this one's.
    `left_s`: seconds until the stage is done; None: not known yet.
    """

    stage: str
    done: int = 0
    total: int = 0
    rows: int = 0
    tokens: int = 0
    rows_per_s: float = 0.0
    tokens_per_s: float = 0.0
    left_s: float | None = None

    @property
    def share(self) -> float:
        """Of the stage, how much is done: 0 to 1."""
        return self.done / self.total if self.total else 0.0

    def text(self) -> str:
        """In words, after "it is"."""
        if self.stage == "queued":
            return "to be rendered in its turn"
        if self.stage == "waiting":
            return "being rendered by another process"
        left = "" if not self.left_s else f", about {self.left_s:,.0f} s left"
        if self.stage != "rendering":
            done = f"{self.share:.0%} of {self.total / 1e6:,.0f} MB" if self.total else f"{self.done / 1e6:,.0f} MB"
            return f"being {_DONE_TO_IT[self.stage]}: {done}{left}"
        return (
            f"being rendered: {self.share:.0%}, {self.rows:,} rows, {self.rows_per_s:,.0f} rows/s, "
            f"{self.tokens_per_s:,.0f} tokens/s{left}"
        )


_DONE_TO_IT: Final = {"fetching": "fetched", "reading": "read", "checking": "checked"}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreInfo:
    """A store as it was admitted; what is dropped, served and padded is for samples of at most `max_length`.

    `read_amplification`: None where rows cost no more than their own bytes, wherever they lie. `admission`: `eager` or
    `lazy`; lazily, only `checked_rows` of the rows were looked at, and what depends on all of them is 0 or empty.
    `state`: `ready`; `rendering`, with nothing known but `rendering`; or `failed`, with nothing known but `fault`.
    """

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
    max_token_row: int
    loss_mask: str
    max_length: int
    padding: tuple[PaddingInfo, ...]
    read_amplification: ReadAmplificationInfo | None
    admission: str
    checked_rows: int
    images: ImageFigures | None = None
    state: str = "ready"
    rendering: RenderingInfo | None = None
    fault: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleInfo:
    """One row of a store, for people. `reason` says why it is not served; it is empty where it is.

    `loss_weight` is empty where the store has none. `images`, `patches`: how many of each.
    """

    row: int
    kept: bool
    reason: str
    input_ids: tuple[int, ...]
    loss_mask: tuple[bool, ...]
    loss_weight: tuple[float, ...] = ()
    images: int = 0
    patches: int = 0
