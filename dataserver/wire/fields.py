"""Protobuf's wire format, as far as the hot message needs it.

https://protobuf.dev/programming-guides/encoding/
"""

from typing import Final

from google.protobuf.message import DecodeError

Payload = bytes | memoryview

MAX_INT32: Final = (1 << 31) - 1
MAX_INT64: Final = (1 << 63) - 1

# Bytes of numbers that are always as wide.
_FIXED: Final = {1: 8, 5: 4}


def field(tag: int, payload: Payload) -> list[Payload]:
    """A length-delimited field in parts; none where it is empty, as protobuf writes it."""
    return [header(tag, len(payload)), payload] if len(payload) else []


def header(tag: int, size: int) -> bytes:
    """What stands before the `size` bytes of a length-delimited field."""
    return varint(tag) + varint(size)


def varint(value: int) -> bytes:
    """Write a number that is not negative."""
    if value <= 0x7F:
        return bytes((value,))
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_varint(data: bytes | memoryview, begin: int) -> tuple[int, int]:
    """Return the value at `begin` and where it ends; raises `DecodeError` for one of more than 64 bits."""
    value = 0
    for shift in range(0, 64, 7):
        byte = data[begin]
        value |= (byte & 0x7F) << shift
        begin += 1
        if byte < 0x80 and value < 1 << 64:
            return value, begin
    raise DecodeError("a number of more than 64 bits")


def read_fields(data: memoryview) -> tuple[dict[int, int], dict[int, memoryview]]:
    """The numbers of a message and its payloads with a length, by tag. Of fields that are repeated, the last.

    Raises `DecodeError` or `IndexError` for bytes that are no message.
    """
    numbers: dict[int, int] = {}
    payloads: dict[int, memoryview] = {}
    begin, size = 0, len(data)
    while begin < size:
        # Nearly all tags and numbers are one byte, and to call a function costs more than to read it.
        tag, begin = data[begin], begin + 1
        if tag >= 0x80:
            tag, begin = read_varint(data, begin - 1)
        wire_type = tag & 7
        if wire_type == 0:
            numbers[tag], begin = data[begin], begin + 1
            if numbers[tag] >= 0x80:
                numbers[tag], begin = read_varint(data, begin - 1)
        elif wire_type == 2:
            length, begin = read_varint(data, begin)
            payloads[tag] = data[begin : begin + length]
            begin += length
        elif wire_type in _FIXED:
            begin += _FIXED[wire_type]
        else:
            raise DecodeError(f"wire type {wire_type}")
    if begin > size:
        raise DecodeError("a field ends behind its message")
    return numbers, payloads


def read_numbers(payload: Payload) -> list[int]:
    """The numbers of a repeated field."""
    numbers, begin = [], 0
    while begin < len(payload):
        number, begin = read_varint(payload, begin)
        numbers.append(number)
    return numbers
