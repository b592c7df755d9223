"""Thrift's compact protocol, as far as footers of Parquet need it.

A struct is `{field: (type, value)}`, a list `(type of its items, [items])`.
"""

from io import BytesIO

TRUE, FALSE, BYTE, DOUBLE, BINARY, LIST, STRUCT = 1, 2, 3, 7, 8, 9, 12
INTEGERS = (4, 5, 6)


def decode(data: bytes):
    return _read(BytesIO(data), STRUCT)


def encode(value) -> bytes:
    out = BytesIO()
    _write(out, STRUCT, value)
    return out.getvalue()


def _read(source, kind):
    if kind in (TRUE, FALSE):
        return kind == TRUE
    if kind == BYTE:
        return source.read(1)
    if kind in INTEGERS:
        number = _read_varint(source)
        return (number >> 1) ^ -(number & 1)
    if kind == DOUBLE:
        return source.read(8)
    if kind == BINARY:
        return source.read(_read_varint(source))
    if kind == LIST:
        head = source.read(1)[0]
        count = head >> 4 if head >> 4 != 15 else _read_varint(source)
        return head & 15, [_read(source, head & 15) for _ in range(count)]
    assert kind == STRUCT, kind
    fields, field = {}, 0
    while head := source.read(1)[0]:
        field = field + (head >> 4) if head >> 4 else _read(source, 4)
        fields[field] = head & 15, _read(source, head & 15)
    return fields


def _write(out, kind, value):
    if kind in (BYTE, DOUBLE):
        out.write(value)
    elif kind in INTEGERS:
        _write_varint(out, (value << 1) ^ (value >> 63))
    elif kind == BINARY:
        _write_varint(out, len(value))
        out.write(value)
    elif kind == LIST:
        item, items = value
        out.write(bytes([(min(len(items), 15) << 4) | item]))
        if len(items) >= 15:
            _write_varint(out, len(items))
        for each in items:
            _write(out, item, each)
    elif kind == STRUCT:
        before = 0
        for field in sorted(value):
            item, content = value[field]
            out.write(bytes([((field - before) << 4) | item]))
            _write(out, item, content)
            before = field
        out.write(b"\0")


def _read_varint(source):
    number = shift = 0
    while True:
        byte = source.read(1)[0]
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return number


def _write_varint(out, number):
    while number >= 128:
        out.write(bytes([(number & 127) | 128]))
        number >>= 7
    out.write(bytes([number]))
