"""JSON Lines rewritten as Arrow, in one pass and in bounded memory.

    lines ──> rows ──BATCH_TOKENS──> record batch ──> first fault? ──> file

Every row has passed `admission` before it is written, so that faults come in the order of the rows, and the copy has
nothing that could be refused.
"""

from array import array
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pyarrow as pa

from dataserver.errors import StoreRefusedError
from dataserver.stores.admission import first_fault
from dataserver.stores.files import ByteSource
from dataserver.stores.json_lines import json_lines
from dataserver.stores.json_rows import CODES, RowParser, Values
from dataserver.stores.pieces import pieces_of
from dataserver.stores.schema import LossMask

BATCH_TOKENS: Final = 1 << 20
_BATCH_ROWS: Final = 1 << 16


_TYPES: Final[dict[str, pa.DataType]] = {"i": pa.int32(), "B": pa.uint8(), "f": pa.float32()}


def write_copy(
    source: ByteSource, path: Path, loss_mask: LossMask, first_row: Callable[[], int], done: Callable[[int], None]
) -> int:
    """Write the rows of `source` to an Arrow file at `path`, and return how many they are.

    `first_row`: tells the store's row of line 1. `done`: called with bytes of `source` gone through. Raises
    `StoreRefusedError` for the first row that breaks a rule. A file without lines becomes one without columns.
    """
    parser = RowParser(source, loss_mask, first_row)
    batch = _Batch(())
    written = 0
    with ExitStack() as stack:
        file = stack.enter_context(pa.OSFile(str(path), "wb"))
        writer = None
        for number, line in json_lines(source, done):
            try:
                row = parser.parse(number, line)
            except StoreRefusedError:
                # A row before this one may break a rule too.
                _checked(batch, parser, source, loss_mask, written)
                raise
            if writer is None:
                batch = _Batch(parser.names)
                writer = stack.enter_context(pa.ipc.new_file(file, batch.schema))
            batch.add(row)
            if batch.is_full:
                writer.write_batch(_checked(batch, parser, source, loss_mask, written))
                written += batch.rows
                batch = _Batch(parser.names)
        if writer is None:
            writer = stack.enter_context(pa.ipc.new_file(file, batch.schema))
        if batch.rows:
            writer.write_batch(_checked(batch, parser, source, loss_mask, written))
    return written + batch.rows


class _Batch:
    """Rows on their way into a record batch."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.schema = pa.schema([(name, pa.list_(_TYPES[CODES[name]])) for name in names])
        self.rows = 0
        self._values = {name: array(CODES[name]) for name in names}
        self._ends = {name: array("i", [0]) for name in names}

    def add(self, row: dict[str, Values]) -> None:
        """Add one row."""
        for name, values in row.items():
            self._values[name] += values
            self._ends[name].append(len(self._values[name]))
        self.rows += 1

    @property
    def is_full(self) -> bool:
        """Whether it is time to write."""
        return self.rows >= _BATCH_ROWS or any(len(values) >= BATCH_TOKENS for values in self._values.values())

    def to_arrow(self) -> pa.RecordBatch:
        """The rows, without a copy: add no more."""
        columns = []
        for name, values in self._values.items():
            buffers = [None, pa.py_buffer(values)]
            child = pa.Array.from_buffers(_TYPES[CODES[name]], len(values), buffers)
            kind = self.schema.field(name).type
            buffers = [None, pa.py_buffer(self._ends[name])]
            columns.append(pa.Array.from_buffers(kind, self.rows, buffers, children=[child]))
        return pa.record_batch(columns, schema=self.schema)


def _checked(batch: _Batch, parser: RowParser, source: ByteSource, loss_mask: LossMask, written: int) -> pa.RecordBatch:
    """The batch in Arrow's form, which follows `written` rows; raises `StoreRefusedError` for its first fault."""
    found = batch.to_arrow()
    row = written
    for piece in pieces_of(found, shard=source.name, with_mask=loss_mask is LossMask.COLUMN) if batch.rows else ():
        fault = first_fault(piece)
        if fault is not None:
            raise parser.refusal(row + fault.row + 1, fault)
        row += len(piece)
    return found
