"""The frame of one message of an Arrow IPC stream: what it is and where it ends, without reading its body.

    FF FF FF FF | metadata length (4) | metadata (a flatbuffer `Message`) | body

Writers before Arrow 0.15 left the first four bytes out. A metadata length of 0 is the end mark.
Source: Message.fbs of apache/arrow, and the layout of flatbuffers.
"""

import struct
from dataclasses import dataclass

from dataserver.stores.files import ByteSource

_CONTINUATION = b"\xff\xff\xff\xff"
_RECORD_BATCH = 3

# Metadata takes some hundred bytes a column; nothing sensible takes more than this.
_MAX_METADATA_BYTES = 1 << 28


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One message: first byte, byte after the last, and whether it is a record batch, of `rows`; end marks `is_end`."""

    begin: int
    end: int
    rows: int = 0
    is_record_batch: bool = False
    is_end: bool = False


def read_frame(source: ByteSource, begin: int, limit: int) -> Frame | None:
    """The message that begins at byte `begin`; None where less than a frame is left before `limit`.

    Raises `ValueError` for what is no message, and for one that goes beyond `limit`.
    """
    prefix = source.read(begin, min(begin + 8, limit))[:]
    if len(prefix) < 4:
        return None
    marked = prefix[:4] == _CONTINUATION
    if marked and len(prefix) < 8:
        return None
    at = begin + (8 if marked else 4)
    length = int.from_bytes(prefix[4:8] if marked else prefix[:4], "little", signed=True)
    if length == 0:
        return Frame(begin=begin, end=at, is_end=True)
    if not 0 < length <= min(_MAX_METADATA_BYTES, limit - at):
        raise ValueError(f"the message at byte {begin} claims {length} bytes of metadata")
    try:
        kind, body, rows = _parse(source.read(at, at + length)[:])
    except (IndexError, struct.error) as error:
        raise ValueError(f"the message at byte {begin} has metadata that cannot be read ({error})") from error
    end = at + length + body
    if body < 0 or end > limit:
        raise ValueError(f"the message at byte {begin} claims {body} bytes, and {limit - at - length} are left")
    if rows < 0:
        raise ValueError(f"the record batch at byte {begin} claims {rows} rows")
    return Frame(begin=begin, end=end, rows=rows, is_record_batch=kind == _RECORD_BATCH)


def _parse(metadata: bytes) -> tuple[int, int, int]:
    """Type of the header, length of the body, and of a record batch its rows.

    Fields 1 and 3 of the table `Message`, and field 0 of `RecordBatch`, to which field 2 leads.
    """
    (message,) = struct.unpack_from("<I", metadata, 0)
    kind = _field(metadata, message, 1, "<B")
    rows = 0
    if kind == _RECORD_BATCH:
        header = _place(metadata, message, 2)
        (to_batch,) = struct.unpack_from("<I", metadata, header)
        rows = _field(metadata, header + to_batch, 0, "<q")
    return kind, _field(metadata, message, 3, "<q"), rows


def _field(metadata: bytes, table: int, number: int, kind: str) -> int:
    """A number in a table; 0 where it was left out."""
    at = _place(metadata, table, number)
    return int(struct.unpack_from(kind, metadata, at)[0]) if at else 0


def _place(metadata: bytes, table: int, number: int) -> int:
    """Where a field of a table lies; 0 where it was left out."""
    (back,) = struct.unpack_from("<i", metadata, table)
    vtable = table - back
    (vtable_bytes,) = struct.unpack_from("<H", metadata, vtable)
    slot = 4 + 2 * number
    at = int(struct.unpack_from("<H", metadata, vtable + slot)[0]) if slot < vtable_bytes else 0
    return table + at if at else 0
