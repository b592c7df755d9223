"""Stores for tests, written by pyarrow in every form that is accepted."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dataserver.stores import LossMask, Store, open_store

sys.path.insert(0, str(Path(__file__).parent))

FORMS = ("arrow_file", "arrow_stream", "arrow_lz4", "parquet")


def write_form(path: Path, table: pa.Table, form: str, rows_per_block: int = 1 << 20) -> Path:
    """Write `table` to `path` without its suffix, in one of FORMS."""
    if form == "parquet":
        path = path.with_name(path.name + ".parquet")
        pq.write_table(table, path, row_group_size=rows_per_block)
        return path
    path = path.with_name(path.name + ".arrow")
    options = pa.ipc.IpcWriteOptions(compression="lz4" if form == "arrow_lz4" else None)
    make = pa.ipc.new_stream if form == "arrow_stream" else pa.ipc.new_file
    with make(path, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=rows_per_block)
    return path


def make_table(
    rows: Sequence[Any], masks: Sequence[Any] | None = None, *, ids_type: Any = None, mask_type: Any = None, **more: Any
) -> pa.Table:
    """A table with `input_ids`, and `loss_mask` (all ones if not given) and further columns."""
    if masks is None:
        masks = [None if row is None else [1] * len(row) for row in rows]
    columns = {
        "input_ids": pa.array(rows, ids_type or pa.list_(pa.int32())),
        "loss_mask": pa.array(masks, mask_type or pa.list_(pa.int8())),
    }
    return pa.table(columns | more)


@pytest.fixture
def index_dir(tmp_path: Path) -> Path:
    return tmp_path / "index"


@pytest.fixture
def opened(index_dir: Path) -> Callable[..., Store]:
    """Open a store with its index in the test's own directory."""

    def open_here(path: Path, loss_mask: LossMask = LossMask.COLUMN) -> Store:
        return open_store(path, loss_mask=loss_mask, index_dir=index_dir)

    return open_here


@pytest.fixture
def table() -> Callable[..., pa.Table]:
    return make_table


@pytest.fixture
def write() -> Callable[..., Path]:
    return write_form


@pytest.fixture
def one_file(tmp_path: Path) -> Callable[..., Path]:
    """Write one table as a store of one file."""

    def write_here(table: pa.Table, form: str = "arrow_stream", rows_per_block: int = 1 << 20) -> Path:
        return write_form(tmp_path / "store", table, form, rows_per_block)

    return write_here


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)
