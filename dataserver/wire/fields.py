"""Protobuf's wire format, as far as the hot message needs it.

https://protobuf.dev/programming-guides/encoding/
"""

from collections.abc import Collection, Iterator

from google.protobuf.message import DecodeError

Payload = bytes | memoryview


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
        if byte < 0x80:
            return value, begin
    raise DecodeError("a number of more than 64 bits")


def split(data: memoryview, large: Collection[int]) -> tuple[bytes, dict[int, memoryview]]:
    """Part a message into its small fields, for protobuf to read, and the payloads of the `large` ones by tag."""
    small, payloads, read = bytearray(), {}, 0
    for tag, begin, payload, end in fields_of(data):
        if tag in large:
            payloads[tag] = data[payload:end]
            small += data[read:begin]
            read = end
    small += data[read:]
    return bytes(small), payloads


def fields_of(data: memoryview) -> Iterator[tuple[int, int, int, int]]:
    """Yield the tag of each field of a message, and where it, its payload and what follows it begin."""
    begin, size = 0, len(data)
    while begin < size:
        # Nearly all tags and numbers are one byte, and to call a function costs more than to read it.
        tag, payload = data[begin], begin + 1
        if tag >= 0x80:
            tag, payload = read_varint(data, begin)
        wire_type = tag & 7
        if wire_type == 0:
            end = payload + 1
            if data[payload] >= 0x80:
                _, end = read_varint(data, payload)
        elif wire_type == 1:
            end = payload + 8
        elif wire_type == 2:
            length, payload = read_varint(data, payload)
            end = payload + length
        elif wire_type == 5:
            end = payload + 4
        else:
            raise DecodeError(f"wire type {wire_type}")
        if end > size:
            raise DecodeError("a field ends behind its message")
        yield tag, begin, payload, end
        begin = end
