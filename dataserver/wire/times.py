"""Times and spans of time, between seconds and messages."""

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp


def to_timestamp(seconds: float) -> Timestamp:
    """Seconds since 1970 as a timestamp, to the microsecond."""
    microseconds = round(seconds * 1_000_000)
    return Timestamp(seconds=microseconds // 1_000_000, nanos=microseconds % 1_000_000 * 1000)


def to_seconds(message: Timestamp | Duration) -> float:
    """A timestamp as seconds since 1970, or a span of time as seconds."""
    return message.seconds + message.nanos / 1e9


def to_duration(seconds: float) -> Duration:
    """A span of time, to the microsecond."""
    microseconds = round(seconds * 1_000_000)
    sign = -1 if microseconds < 0 else 1
    return Duration(
        seconds=sign * (abs(microseconds) // 1_000_000), nanos=sign * (abs(microseconds) % 1_000_000) * 1000
    )
