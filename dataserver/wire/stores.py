"""What the services tell about stores, between values and messages: both have the same fields, by the same names."""

from collections.abc import Iterable
from dataclasses import asdict, fields
from typing import Any, TypeVar

from google.protobuf.message import Message

from dataserver.v1 import store_service_pb2 as pb
from dataserver.wire.store_info import (
    ColumnInfo,
    IgnoredPathInfo,
    ImageFigures,
    LengthBucketInfo,
    LinkInfo,
    PaddingInfo,
    ReadAmplificationInfo,
    RenderingInfo,
    SampleInfo,
    ShardInfo,
    StoreInfo,
)

T = TypeVar("T")


def store_to_proto(store: StoreInfo) -> pb.Store:
    """Write a store."""
    return pb.Store(**asdict(store))


def store_from_proto(message: pb.Store) -> StoreInfo:
    """Read a store."""
    return _read(
        StoreInfo,
        message,
        dropped=dict(message.dropped),
        columns=_read_all(ColumnInfo, message.columns),
        shards=_read_all(ShardInfo, message.shards),
        ignored=_read_all(IgnoredPathInfo, message.ignored),
        links=_read_all(LinkInfo, message.links),
        length_histogram=_read_all(LengthBucketInfo, message.length_histogram),
        padding=_read_all(PaddingInfo, message.padding),
        images=_read(ImageFigures, message.images) if message.HasField("images") else None,
        read_amplification=(
            _read(ReadAmplificationInfo, message.read_amplification) if message.HasField("read_amplification") else None
        ),
        rendering=_rendering(message.rendering) if message.HasField("rendering") else None,
    )


def _rendering(message: pb.Rendering) -> RenderingInfo:
    return _read(RenderingInfo, message, left_s=message.left_s if message.HasField("left_s") else None)


def sample_from_proto(message: pb.Sample) -> SampleInfo:
    """Read a row."""
    return _read(
        SampleInfo,
        message,
        input_ids=tuple(message.input_ids),
        loss_mask=tuple(message.loss_mask),
        loss_weight=tuple(message.loss_weight),
    )


def _read(kind: type[T], message: Message, **more: Any) -> T:  # noqa: ANN401 - what of its fields is no number or text
    """The value of a message; `more` are those of its fields that are no plain ones."""
    names = [field.name for field in fields(kind) if field.name not in more]  # type: ignore[arg-type]
    return kind(**{name: getattr(message, name) for name in names}, **more)


def _read_all(kind: type[T], messages: Iterable[Message]) -> tuple[T, ...]:
    return tuple(_read(kind, message) for message in messages)
