"""The columns of a shard by its schema, and whether those that are read have types that are.

A type is tried on no rows: by what reads it later, so that both agree.
"""

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from dataserver.errors import StoreRefusedError
from dataserver.stores.nested import WANTED, nested
from dataserver.stores.parsing import PARSE_ERRORS
from dataserver.stores.ragged import ragged, type_refusal
from dataserver.stores.schema import (
    ATTENTION_MASK,
    IMAGE_COLUMNS,
    INPUT_IDS,
    LOSS_MASK,
    LOSS_WEIGHT,
    Column,
    LossMask,
    ShardSchema,
    selected_columns,
)

_READERS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys((INPUT_IDS, LOSS_MASK, ATTENTION_MASK, LOSS_WEIGHT), ragged),
    **dict.fromkeys(IMAGE_COLUMNS, nested),
}
_WANTED = {LOSS_WEIGHT: "a list of floats"} | dict.fromkeys(IMAGE_COLUMNS, WANTED)


def columns_of(schema: pa.Schema) -> tuple[Column, ...]:
    """The top-level columns of an Arrow schema."""
    return tuple(Column(name=field.name, type=str(field.type), is_read=_is_read(field)) for field in schema)


def check_types(shards: Sequence[ShardSchema], loss_mask: LossMask) -> None:
    """Raise `StoreRefusedError` for the first column of a type that is not read, before any row is looked at."""
    for shard in shards:
        selected = selected_columns(shard.names, loss_mask)
        for column in shard.columns:
            if column.name in selected and not column.is_read:
                wanted = _WANTED.get(column.name, "a list of integers")
                raise type_refusal(column.type, shard=shard.path, column=column.name, wanted=wanted)


def _is_read(field: "pa.Field[Any]") -> bool:
    reader = _READERS.get(field.name)
    if reader is None:
        return True
    try:
        found = reader(pa.nulls(0, field.type), shard="", column=field.name)
    except StoreRefusedError:
        return False
    except PARSE_ERRORS:  # Arrow makes no such array: whoever reads the column tells
        return True
    return not (field.name in (INPUT_IDS, LOSS_WEIGHT) and found.value_type == "bool")
