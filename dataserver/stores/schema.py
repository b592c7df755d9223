"""Names and types of a store's columns, and the rules that concern whole shards.

The rules of single rows are in `admission`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from dataserver.errors import StoreRefusedError

INPUT_IDS = "input_ids"
LOSS_MASK = "loss_mask"
ATTENTION_MASK = "attention_mask"
LOSS_WEIGHT = "loss_weight"
LABELS = "labels"
PIXEL_VALUES = "pixel_values"
IMAGE_GRID_THW = "image_grid_thw"
IMAGE_COLUMNS = (PIXEL_VALUES, IMAGE_GRID_THW)

_REQUIRED = {
    INPUT_IDS: "'input_ids' column.",
    LOSS_MASK: "'loss_mask' column (full-sequence 0/1 mask, same length as input_ids).",
}
_LABELS_HINT = " It has 'labels': derive the mask from them, 0 where the label is -100 and 1 elsewhere."


class LossMask(StrEnum):
    """Where the loss mask comes from."""

    COLUMN = "column"
    """From the column `loss_mask`."""
    ALL = "all"
    """Every token is a target; the column is not needed and not read."""


class Admission(StrEnum):
    """When the rows of a store are checked."""

    EAGER = "eager"
    """All of them before the store is served."""
    LAZY = "lazy"
    """Those of a block when it is first needed; before that only footers are read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column: its name and its Arrow type, as text. `is_read`: False if it has a name of ours and no type for it."""

    name: str
    type: str
    is_read: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardSchema:
    """The columns of one shard."""

    path: str
    columns: tuple[Column, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Column names in file order."""
        return tuple(column.name for column in self.columns)


def selected_columns(names: Sequence[str], loss_mask: LossMask) -> list[str]:
    """The columns that admission reads, of those that a shard has."""
    mask = [] if loss_mask is LossMask.ALL else [LOSS_MASK]
    return [name for name in (INPUT_IDS, *mask, ATTENTION_MASK, LOSS_WEIGHT, *IMAGE_COLUMNS) if name in names]


def served_columns(names: Sequence[str], loss_mask: LossMask) -> list[str]:
    """The columns that rows are served from, of those that a shard has."""
    return [name for name in selected_columns(names, loss_mask) if name != ATTENTION_MASK]


def check_schemas(store_path: str, shards: Sequence[ShardSchema], loss_mask: LossMask) -> None:
    """Raise `StoreRefusedError` unless all shards have the same, sufficient columns.

    The verdict does not depend on the order of the shards.
    """
    for shard in shards:
        _check_no_duplicates(shard)
    union = sorted({name for shard in shards for name in shard.names})
    _check_required(store_path, union, loss_mask)
    for name in union:
        having = [shard.path for shard in shards if name in shard.names]
        lacking = [shard.path for shard in shards if name not in shard.names]
        if lacking:
            raise StoreRefusedError(
                f"Shard '{lacking[0]}' lacks the column '{name}' that '{having[0]}' has "
                f"({len(lacking)} of {len(shards)} shards lack it). All shards of a store must have the same columns.",
                shard=lacking[0],
                column=name,
            )
    lone = [name for name in IMAGE_COLUMNS if name in union]
    if len(lone) == 1:
        raise StoreRefusedError(
            f"Pretokenized dataset at '{store_path}': it has the column '{lone[0]}' alone of {IMAGE_COLUMNS}, which "
            "image rows need both. Write both, null in rows of text, or drop it.",
            column=lone[0],
        )


def _check_required(store_path: str, names: Sequence[str], loss_mask: LossMask) -> None:
    required = [INPUT_IDS] if loss_mask is LossMask.ALL else [INPUT_IDS, LOSS_MASK]
    for name in required:
        if name not in names:
            hint = _LABELS_HINT if name == LOSS_MASK and LABELS in names else ""
            raise StoreRefusedError(
                f"Pretokenized dataset at '{store_path}': missing required {_REQUIRED[name]}{hint}", column=name
            )


def _check_no_duplicates(shard: ShardSchema) -> None:
    for name in shard.names:
        if shard.names.count(name) > 1:
            raise StoreRefusedError(
                f"Shard '{shard.path}' has {shard.names.count(name)} columns named '{name}'. Column names must differ.",
                shard=shard.path,
                column=name,
            )
