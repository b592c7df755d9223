"""Another schema for the list columns of a Parquet file."""

from pathlib import Path

from parquetlab.thrift import BINARY, INTEGERS, LIST, STRUCT, decode, encode

I32 = INTEGERS[1]
_MAGIC = b"PAR1"
_REQUIRED, _OPTIONAL, _REPEATED = 0, 1, 2


def rewrite_schema(path: Path, *names: str, wrapped: bool = True) -> None:
    """Give every list of the file at `path`, written with three levels, the schema of an older writer.

    `names`: of what stands below the list's own group: `("bag", "array")`, or `("array",)` for two levels, where the
    repeated field is the value itself. `wrapped=False`: the column itself is repeated, as Protocol Buffers have it.
    """
    data = path.read_bytes()
    assert data.endswith(_MAGIC)
    size = int.from_bytes(data[-8:-4], "little")
    footer = decode(data[-8 - size : -8])
    footer[2] = LIST, (STRUCT, list(_rewritten(footer[2][1][1], names, wrapped)))
    below = [name.encode() for name in names]
    for group in footer[4][1][1]:
        for chunk in group[1][1][1]:
            column = chunk[3][1]
            column[3] = LIST, (BINARY, [column[3][1][1][0], *below])
    footer.pop(5, None)  # what else the writer kept: Arrow's schema
    encoded = encode(footer)
    path.write_bytes(data[: -8 - size] + encoded + len(encoded).to_bytes(4, "little") + _MAGIC)


def _rewritten(elements, names, wrapped):
    """The root, then of each column its group, the repeated group, and the value."""
    root, rest = elements[0], elements[1:]
    yield root
    for at in range(0, len(rest), 3):
        column, repeated, value = (dict(element) for element in rest[at : at + 3])
        if not wrapped:
            yield value | {3: (I32, _REPEATED), 4: column[4]}
            continue
        yield column
        if len(names) == 2:
            yield repeated | {4: (BINARY, names[0].encode())}
            yield value | {4: (BINARY, names[1].encode())}
        else:
            yield value | {3: (I32, _REPEATED), 4: (BINARY, names[0].encode())}
