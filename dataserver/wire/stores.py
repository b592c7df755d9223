"""What the services tell about stores, between values and messages."""

from dataclasses import asdict

from dataserver.v1 import store_service_pb2 as pb
from dataserver.wire.store_info import (
    ColumnInfo,
    IgnoredPathInfo,
    ImageFigures,
    LengthBucketInfo,
    LinkInfo,
    PaddingInfo,
    ReadAmplificationInfo,
    SampleInfo,
    ShardInfo,
    StoreInfo,
)


def store_to_proto(store: StoreInfo) -> pb.Store:
    """Write a store: its values have the fields of its messages."""
    return pb.Store(**asdict(store))


def store_from_proto(message: pb.Store) -> StoreInfo:
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
        max_token_row=message.max_token_row,
        loss_mask=message.loss_mask,
        admission=message.admission,
        checked_rows=message.checked_rows,
        max_length=message.max_length,
        padding=tuple(_padding_from_proto(padding) for padding in message.padding),
        images=_images_from_proto(message.images) if message.HasField("images") else None,
        read_amplification=(
            _amplification_from_proto(message.read_amplification) if message.HasField("read_amplification") else None
        ),
    )


def sample_from_proto(message: pb.Sample) -> SampleInfo:
    """Read a row."""
    return SampleInfo(
        row=message.row,
        kept=message.kept,
        reason=message.reason,
        input_ids=tuple(message.input_ids),
        loss_mask=tuple(message.loss_mask),
        loss_weight=tuple(message.loss_weight),
        images=message.images,
        patches=message.patches,
    )


def _images_from_proto(message: pb.StoreImages) -> ImageFigures:
    return ImageFigures(
        rows=message.rows,
        first_row=message.first_row,
        images=message.images,
        patches=message.patches,
        patch_values=message.patch_values,
        pixel_bytes=message.pixel_bytes,
        bytes_per_token=message.bytes_per_token,
        densest_row=message.densest_row,
    )


def _padding_from_proto(message: pb.Padding) -> PaddingInfo:
    return PaddingInfo(
        micro_batch_tokens=message.micro_batch_tokens,
        rows=message.rows,
        unpacked=message.unpacked,
        packed=message.packed,
    )


def _amplification_from_proto(message: pb.ReadAmplification) -> ReadAmplificationInfo:
    return ReadAmplificationInfo(
        blocks=message.blocks,
        decoded_bytes=message.decoded_bytes,
        cache_bytes=message.cache_bytes,
        rows_per_row=message.rows_per_row,
    )
