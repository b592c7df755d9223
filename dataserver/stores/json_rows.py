"""One line of JSON Lines as a row, by the same rules as a row of Arrow or Parquet.

    line ──> object ──> lists of small whole numbers?  ── yes ──> arrays
                                                        └─ no ──> `admission` says what is wrong, or that 3.0 is 3

Rules that every format has are judged by `admission`, so that a fault reads the same wherever it stands. Checked here
is what only JSON can hold: text, nested lists, `true` for a token, one key twice. Numbers are read as JSON's readers
do, those with a fraction or beyond 64 bits as doubles.
"""

import json
from array import array
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import orjson
import pyarrow as pa

from dataserver.errors import StoreRefusedError
from dataserver.stores.admission import MAX_TOKEN, first_fault
from dataserver.stores.faults import Fault
from dataserver.stores.files import ByteSource
from dataserver.stores.json_lines import json_lines, line_refusal
from dataserver.stores.pieces import pieces_of
from dataserver.stores.schema import (
    ATTENTION_MASK,
    IMAGE_COLUMNS,
    INPUT_IDS,
    LABELS,
    LOSS_MASK,
    LOSS_WEIGHT,
    Column,
    LossMask,
)

CODES: Final = {INPUT_IDS: "i", LOSS_MASK: "B", ATTENTION_MASK: "B", LOSS_WEIGHT: "f"}
"""The columns that are read of a line, with the type code of their values: `i` int32, `B` uint8, `f` float32."""

# Lowest and highest value, and the types, about which nothing need be asked.
_LEGAL: Final[dict[str, tuple[float, float, set[type]]]] = {
    INPUT_IDS: (0, MAX_TOKEN, {int}),
    LOSS_MASK: (0, 1, {int, bool}),
    ATTENTION_MASK: (1, 1, {int, bool}),
    LOSS_WEIGHT: (0, float(np.finfo(np.float32).max), {int, float}),
}

_NAMED: Final = {str: "text", bool: "a boolean", list: "a list", dict: "an object", type(None): "null"}

_JSON_LINES: Final = (
    "Every line must be one object, a row. "
    "Of a file that is one array, `jq -c '.[]' data.json > data.jsonl` makes such lines."
)

Values: TypeAlias = "array[Any]"


def read_line_columns(source: ByteSource, loss_mask: LossMask) -> tuple[Column, ...] | None:
    """The columns of the first line that matter; None where the file has no line."""
    for number, line in json_lines(source):
        found = RowParser(source, loss_mask, lambda: 0).parse_object(number, line)
        names = (*_wanted(loss_mask), LABELS, *IMAGE_COLUMNS)
        return tuple(Column(name=name, type="JSON") for name in names if name in found)
    return None


class RowParser:
    """Parses the lines of one file in order. `first_row`: tells the store's row of line 1, asked for messages only."""

    def __init__(self, source: ByteSource, loss_mask: LossMask, first_row: Callable[[], int]) -> None:
        self._source = source
        self._wanted = _wanted(loss_mask)
        self._with_mask = loss_mask is LossMask.COLUMN
        self._first_row = first_row
        self.names: tuple[str, ...] = ()

    def parse(self, number: int, line: bytes) -> dict[str, Values]:
        """The values of each column of `names`, those of line 1. Raises `StoreRefusedError`."""
        row = self.parse_object(number, line)
        names = tuple(name for name in self._wanted if name in row)
        if number == 1:
            self.names = names
        if names != self.names:
            raise self._other_columns(number, names)
        for name in IMAGE_COLUMNS:
            if row.get(name) is not None:
                problem = "image rows are not read from JSON: write the store as Arrow or Parquet."
                raise line_refusal(self._source, number, problem, column=name)
        quick = {name: _small_numbers(name, row[name]) for name in names}
        found = {name: values for name, values in quick.items() if values is not None}
        return found if len(found) == len(names) else self._judged(number, {name: row[name] for name in names})

    def parse_object(self, number: int, line: bytes) -> dict[str, Any]:
        """The object on a line. Raises `StoreRefusedError`."""
        if not line.strip():
            raise line_refusal(self._source, number, "it is blank, and every line is a row: remove it.")
        try:
            row = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            problem, column = _explain(error, number, line)
            raise line_refusal(self._source, number, problem, column=column) from error
        if not isinstance(row, dict):
            raise line_refusal(self._source, number, f"it holds {_named(row)} and no object. {_JSON_LINES}", column=1)
        # As many colons as keys: then no key came twice, and none needs a second look.
        if line.count(b":") != len(row):
            self._check_keys(number, line)
        return row

    def refusal(self, number: int, fault: Fault) -> StoreRefusedError:
        """The error for a row of the line `number` that breaks a rule of admission."""
        row = self._first_row() + number - 1
        return StoreRefusedError(
            f"{fault.text.replace('{row}', str(row))} "
            f"(shard '{self._source.name}', line {number}, column '{fault.column}')",
            row=row,
            shard=self._source.name,
            line=number,
            column=fault.column,
        )

    def _check_keys(self, number: int, line: bytes) -> None:
        try:
            keys = [key for key, _ in json.loads(line, object_pairs_hook=list)]
        except RecursionError as error:
            raise line_refusal(self._source, number, "it is nested too deeply to be read.") from error
        twice = next((key for at, key in enumerate(keys) if key in keys[:at]), None)
        if twice is not None:
            problem = "the line has this key twice, and nothing says which of them counts."
            raise line_refusal(self._source, number, problem, column=str(twice))

    def _other_columns(self, number: int, names: Sequence[str]) -> StoreRefusedError:
        name = next(name for name in self._wanted if (name in names) != (name in self.names))
        has, other = ("lacks", "has") if name in self.names else ("has", "lacks")
        problem = f"it {has} this column and line 1 {other} it. All rows of a store must have the same columns."
        return line_refusal(self._source, number, problem, column=name)

    def _judged(self, number: int, row: dict[str, Any]) -> dict[str, Values]:
        """The long way: numbers written as fractions, and everything that is wrong."""
        lists: dict[str, list[Any] | None] = {}
        for name, values in row.items():
            if values is not None and not isinstance(values, list):
                raise line_refusal(self._source, number, f"it holds {_named(values)} and no list.", column=name)
            lists[name] = None if values is None else self._numbers(number, name, values)
        batch = pa.record_batch(
            {name: pa.array([values], pa.list_(_number_type(values))) for name, values in lists.items()}
        )
        for piece in pieces_of(batch, shard=self._source.name, with_mask=self._with_mask):
            fault = first_fault(piece)
            if fault is not None:
                raise self.refusal(number, fault)
        return {
            name: array(CODES[name], values or () if name == LOSS_WEIGHT else map(int, values or ()))
            for name, values in lists.items()
        }

    def _numbers(self, number: int, name: str, values: list[Any]) -> list[Any]:
        allowed: set[type] = {int, float, type(None)} | _LEGAL[name][2]
        for at, value in enumerate(values):
            if type(value) not in allowed:
                raise line_refusal(self._source, number, f"value {at} is {_named(value)} and no number.", column=name)
        # Of two whole numbers that no type holds both of, a double tells enough: one of them is refused.
        kind = int if _are_int64(values) else float
        return [None if value is None else kind(value) for value in values]


def _wanted(loss_mask: LossMask) -> tuple[str, ...]:
    return tuple(name for name in CODES if name != LOSS_MASK or loss_mask is LossMask.COLUMN)


def _small_numbers(name: str, values: object) -> "Values | None":
    """The values where nothing about them needs a second look, else None."""
    lowest, highest, types = _LEGAL[name]
    if type(values) is not list or not set(map(type, values)) <= types:
        return None
    try:
        found = array(CODES[name], values)
    except OverflowError:
        return None
    if len(found) == 0:
        return found
    numbers = np.frombuffer(found, dtype=found.typecode)
    return found if numbers.min() >= lowest and numbers.max() <= highest else None


def _number_type(values: list[Any] | None) -> pa.DataType:
    """64-bit integers where all values are, so that messages show them as they were written."""
    return pa.int64() if _are_int64(values or []) else pa.float64()


def _are_int64(values: list[Any]) -> bool:
    return all(value is None or (isinstance(value, int) and -(2**63) <= value < 2**63) for value in values)


def _named(value: object) -> str:
    return _NAMED.get(type(value), f"the number {value}")


def _explain(error: orjson.JSONDecodeError, number: int, line: bytes) -> tuple[str, int]:
    """What is wrong with a line that is no JSON, and at which of its columns."""
    try:
        line.decode()
    except UnicodeDecodeError as undecoded:
        return "this is no UTF-8.", undecoded.start + 1
    problem = f"this is no JSON ({error.msg.partition(':')[0]})."
    if number == 1 and (line.startswith(b"[") or line.strip() == b"{"):
        return f"{problem} {_JSON_LINES}", error.colno
    return f"{problem} Was the line, or the file, cut off?" if error.pos >= len(line) else problem, error.colno
