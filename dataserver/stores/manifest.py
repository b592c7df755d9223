"""The manifest: what a store was when it was admitted.

It is the server's own record, kept in the index directory. A file that no longer agrees with it
is another store (at opening) or a damaged one (while it is open).
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import xxhash

from dataserver.stores.files import FileStamp, Span
from dataserver.stores.index import seal, unseal
from dataserver.stores.schema import Admission, Column, LossMask, served_columns
from dataserver.wire.store_info import ImageFigures

# Part of every name in the index directory: tick it when the manifest, the index arrays or a
# rule of admission changes, so that nothing older is taken for valid.
INDEX_VERSION = 8

# Array of the index, there for stores with weights: those of each row's targets.
WEIGHTS = "weights.f8"


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnLayout:
    """How a list column lies in a mapped file.

    `offsets`: `int32` or `int64` (the dtype of the row offsets), or `fixed`, where every row has
    `size` values. `values`: numpy dtype name, or `bool` for Arrow's bits.
    """

    offsets: str
    size: int
    values: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageLayout:
    """How the image columns lie in a mapped file: numpy dtype names of their values. The index says where."""

    pixel_values: str
    image_grid_thw: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardLayout:
    """How the columns of a shard lie in its mapped file. Shards without a layout are decoded."""

    input_ids: ColumnLayout
    loss_mask: ColumnLayout | None
    loss_weight: ColumnLayout | None = None
    images: ImageLayout | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """One file of a store. `digest` is the XXH3-128 of its bytes, in hex; `path` is relative to the store.

    Where only footers were read: of its head, and of where its blocks lie.
    `copy_digest`: that of the Arrow copy which is read in its place; empty where the file itself is.
    `head`: the bytes that a reader needs before any block; None where blocks are read from the file as a whole.
    """

    path: str
    stamp: FileStamp
    rows: int
    digest: str
    columns: tuple[Column, ...]
    layout: ShardLayout | None
    copy_digest: str
    head: Span | None = None

    @property
    def size(self) -> int:
        """Bytes."""
        return self.stamp.size

    @property
    def head_bytes(self) -> int:
        """Bytes of its head in the index."""
        return 0 if self.head is None else self.head[1] - self.head[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthBucket:
    """`rows` rows have at least `begin` and fewer than `end` tokens."""

    begin: int
    end: int
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A store as it was admitted.

    `max_token` (-1: no token at all) stands in row `max_token_row` first. `array_digests`: XXH3-128
    of each array of the index, in hex, by file name. `images`: None where no row has any.

    Where `admission` is lazy, no row was looked at: `tokens` are 0, `longest_row` and `max_token` as high as they
    might be, and there is no histogram.
    """

    format: str
    loss_mask: LossMask
    fingerprint: str
    shards: tuple[Shard, ...]
    rows: int
    tokens: int
    longest_row: int
    max_token: int
    max_token_row: int
    length_histogram: tuple[LengthBucket, ...]
    array_digests: Mapping[str, str]
    images: ImageFigures | None = None
    admission: Admission = Admission.EAGER

    @property
    def token_bytes(self) -> int:
        """Bytes of one token on the wire: the narrowest of 2 and 4 that holds every token of every shard."""
        return 2 if self.max_token < 1 << 16 else 4

    @property
    def is_far(self) -> bool:
        """Whether its blocks are read by ranges: its files are objects of a storage, or were not gone through."""
        return any(shard.head is not None for shard in self.shards)

    def served_columns(self, shard: int) -> list[str]:
        """The columns that rows of a shard are served from."""
        return served_columns([column.name for column in self.shards[shard].columns], self.loss_mask)

    @property
    def heads_bytes(self) -> int:
        """Bytes of all heads in the index."""
        return sum(shard.head_bytes for shard in self.shards)

    @property
    def has_weights(self) -> bool:
        """Whether rows have a weight for each token."""
        return WEIGHTS in self.array_digests

    def to_json(self) -> str:
        """The manifest as text."""
        return seal(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Manifest":
        """Read what `to_json` wrote; anything else raises `ValueError`, `KeyError` or `TypeError`."""
        fields = unseal(text)
        return cls(
            **fields
            | {
                "loss_mask": LossMask(fields["loss_mask"]),
                "admission": Admission(fields["admission"]),
                "shards": tuple(shard_of(entry) for entry in fields["shards"]),
                "images": None if fields["images"] is None else ImageFigures(**fields["images"]),
                "length_histogram": tuple(LengthBucket(**entry) for entry in fields["length_histogram"]),
            }
        )


def store_fingerprint(shards: Sequence[Shard], loss_mask: LossMask) -> str:
    """XXH3-128, in hex, over shard order, sizes, row counts, contents, and where the mask comes from."""
    facts = [str(loss_mask), *(f"{shard.size} {shard.rows} {shard.digest}" for shard in shards)]
    return xxhash.xxh3_128_hexdigest("\n".join(facts).encode())


def shard_of(entry: Mapping[str, Any]) -> Shard:
    """The shard that `asdict` made `entry` of, by way of JSON."""
    columns = tuple(Column(**column) for column in entry["columns"])
    layout = entry["layout"]
    if layout is not None:
        mask, weight, images = layout["loss_mask"], layout["loss_weight"], layout["images"]
        layout = ShardLayout(
            input_ids=ColumnLayout(**layout["input_ids"]),
            loss_mask=None if mask is None else ColumnLayout(**mask),
            loss_weight=None if weight is None else ColumnLayout(**weight),
            images=None if images is None else ImageLayout(**images),
        )
    head = None if entry["head"] is None else (int(entry["head"][0]), int(entry["head"][1]))
    return Shard(
        **dict(entry) | {"stamp": FileStamp(**entry["stamp"]), "columns": columns, "layout": layout, "head": head}
    )
