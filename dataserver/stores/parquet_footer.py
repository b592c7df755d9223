"""Where the column chunks of a Parquet file lie, read from its footer.

Arrow tells this too, but ends the process where a footer is damaged. What is read here is the little
of Thrift's compact protocol that a footer consists of:

    struct    (field header, value)* 0      header: high half-byte = step of the field id, low = type
    list      header: high half-byte = count (15: a varint follows), low = type; values
    integers  varints, zigzag where signed; binary: varint length, bytes

Source: parquet.thrift of apache/parquet-format, and the compact protocol's specification.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dataserver.stores.files import Bytes

TAIL_BYTES = 8
_MAGIC = b"PAR1"
_SEAM = 2 * _MAGIC
_WINDOW_BYTES = 8 << 20

TWO_FILES = "it is two Parquet files laid end to end: the rows of one would be lost. Write them as two shards"

# Types of the compact protocol.
_TRUE, _FALSE, _BYTE, _I64, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 1, 2, 3, 6, 7, 8, 9, 10, 12

# Field ids of FileMetaData, RowGroup, ColumnChunk and ColumnMetaData.
_ROW_GROUPS = 4
_COLUMNS, _ROWS = 1, 3
_META_DATA = 3
_PATH, _COMPRESSED_SIZE, _DATA_PAGE, _DICTIONARY_PAGE = 3, 7, 9, 11

# No footer nests deeper; one that does is damaged, and must not exhaust the stack.
_MAX_DEPTH = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnChunk:
    """One column of one row group: the name of its top-level column, first byte, byte after the last."""

    column: str
    begin: int
    end: int


def footer_begin(tail: bytes, size: int) -> int:
    """The first byte of the footer of a file of `size` bytes that ends with `tail`; raises `ValueError`."""
    if len(tail) < TAIL_BYTES or tail[-4:] != _MAGIC:
        raise ValueError("it does not end as a Parquet file does: it was cut off, or is still being written")
    begin = size - TAIL_BYTES - int.from_bytes(tail[-8:-4], "little")
    if begin < len(_MAGIC):
        raise ValueError("its footer claims to be longer than the file")
    return begin


def column_chunks(footer: bytes, size: int) -> tuple[tuple[ColumnChunk, ...], ...]:
    """The chunks of each row group, of a footer (without the 8 bytes behind it) of a file of `size` bytes.

    Raises `ValueError` for anything that is no footer, or that names bytes outside of the file.
    """
    try:
        groups = _Reader(footer).struct(0).get(_ROW_GROUPS, [])
        return tuple(tuple(_chunk(column[_META_DATA], size) for column in _columns_of(group)) for group in groups)
    except (IndexError, KeyError, TypeError, AttributeError, UnicodeDecodeError) as error:
        raise ValueError(f"its footer cannot be read ({type(error).__name__}: {error})") from error


def holds_another_file(groups: Sequence[Sequence[ColumnChunk]], footer: int, read: Callable[[int, int], Bytes]) -> bool:
    """Whether one Parquet file ends and another begins between the last chunk and the footer at byte `footer`.

    As in two files laid end to end, of which the last one's footer tells, about the first one's bytes. `read` is asked
    for what is there: page indexes and Bloom filters, in most files nothing.
    """
    at = max((chunk.end for group in groups for chunk in group), default=len(_MAGIC))
    while at + len(_SEAM) <= footer:
        end = min(at + _WINDOW_BYTES, footer)
        if _SEAM in read(at, end)[:]:
            return True
        at = end - len(_SEAM) + 1
    return False


def _columns_of(group: dict[int, Any]) -> list[dict[int, Any]]:
    """Of a group with rows: where one without has its chunks, writers do not agree."""
    columns: list[dict[int, Any]] = group[_COLUMNS]
    return columns if group[_ROWS] else []


def _chunk(meta: dict[int, Any], size: int) -> ColumnChunk:
    begin, dictionary = meta[_DATA_PAGE], meta.get(_DICTIONARY_PAGE, 0)
    if 0 < dictionary < begin:
        begin = dictionary
    end = begin + meta[_COMPRESSED_SIZE]
    if not 0 < begin <= end <= size:
        raise ValueError(f"its footer names bytes {begin} to {end} of {size}")
    return ColumnChunk(column=meta[_PATH][0].decode(), begin=begin, end=end)


class _Reader:
    """A position in encoded bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._read: dict[int, Callable[[int], Any]] = {
            _TRUE: lambda _: True,
            _FALSE: lambda _: False,
            _BYTE: lambda _: self._byte(),
            _DOUBLE: lambda _: self._bytes(8),
            _BINARY: lambda _: self._bytes(self._varint()),
            _LIST: self._list,
            _SET: self._list,
            _STRUCT: self.struct,
        }
        self._read |= dict.fromkeys(range(4, _I64 + 1), lambda _: self._signed())

    def struct(self, depth: int) -> dict[int, Any]:
        """Values by field id."""
        if depth > _MAX_DEPTH:
            raise ValueError("its footer is nested too deeply")
        fields: dict[int, Any] = {}
        number = 0
        while header := self._byte():
            number = number + (header >> 4) if header >> 4 else self._signed()
            fields[number] = self._read[header & 15](depth + 1)
        return fields

    def _list(self, depth: int) -> list[Any]:
        if depth > _MAX_DEPTH:
            raise ValueError("its footer is nested too deeply")
        header = self._byte()
        count = header >> 4 if header >> 4 < 15 else self._varint()
        if count > len(self._data):
            raise ValueError(f"its footer has a list of {count} values")
        kind = header & 15
        if kind in (_TRUE, _FALSE):
            return list(self._bytes(count))
        return [self._read[kind](depth + 1) for _ in range(count)]

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _bytes(self, count: int) -> bytes:
        begin, self._at = self._at, self._at + count
        if self._at > len(self._data):
            raise ValueError("its footer ends too early")
        return self._data[begin : self._at]

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
            if shift > 63:
                raise ValueError("its footer has a number of more than 64 bits")

    def _signed(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)
