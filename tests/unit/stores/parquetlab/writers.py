"""One table, written by everyone who writes Parquet."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import arro3.core
import arro3.io
import duckdb
import polars
import pyarrow as pa
import pyarrow.parquet as pq

from parquetlab.footer import rewrite_schema

IDS, MASK = "input_ids", "loss_mask"
_LEAF = f"{IDS}.list.element"

Write = Callable[[list[list[int]], list[list[int]], Path], None]


def as_table(ids, masks, *, lists=pa.list_, value=None, nullable=(True, True)):
    """`nullable`: whether the lists may be null, and whether their values may be."""
    fields = [
        pa.field(name, lists(pa.field("element", kind, nullable=nullable[1])), nullable=nullable[0])
        for name, kind in ((IDS, value or pa.int32()), (MASK, pa.int8()))
    ]
    schema = pa.schema(fields)
    return pa.table(
        [pa.array(rows, field.type) for rows, field in zip((ids, masks), schema, strict=True)], schema=schema
    )


def with_pyarrow(ids, masks, path, *, lists=pa.list_, value=None, **options):
    pq.write_table(as_table(ids, masks, lists=lists, value=value), path, **options)


def with_polars(ids, masks, path, **options):
    kinds = {IDS: polars.List(polars.UInt32), MASK: polars.List(polars.Boolean)}
    rows = {IDS: ids, MASK: [[bool(one) for one in row] for row in masks]}
    polars.DataFrame(rows, schema=kinds).write_parquet(path, **options)


def with_duckdb(ids, masks, path, *, options=""):
    given = as_table(ids, masks)
    with duckdb.connect() as connection:
        connection.register("given", given)
        connection.execute(f"COPY given TO '{path}' (FORMAT parquet {options})")


def with_arrow_rs(ids, masks, path, **options):
    arro3.io.write_parquet(arro3.core.Table.from_arrow(as_table(ids, masks)), str(path), **options)


def as_older_writer(ids, masks, path, *, names, nullable, wrapped=True):
    table = as_table(ids, masks, nullable=nullable)
    pq.write_table(table, path, store_schema=False, use_dictionary=False)
    rewrite_schema(path, *names, wrapped=wrapped)


_VALUES_REQUIRED = (True, False)

WRITERS: dict[str, Write] = {
    "pyarrow": with_pyarrow,
    "pyarrow, format 1.0": partial(with_pyarrow, version="1.0", value=pa.uint32()),
    "pyarrow, format 2.4": partial(with_pyarrow, version="2.4", value=pa.uint16()),
    "pyarrow, data pages 2.0": partial(with_pyarrow, data_page_version="2.0", compression="zstd"),
    "pyarrow, no dictionary": partial(with_pyarrow, use_dictionary=False, compression="none"),
    "pyarrow, delta": partial(with_pyarrow, use_dictionary=False, column_encoding={_LEAF: "DELTA_BINARY_PACKED"}),
    "pyarrow, bytes split": partial(with_pyarrow, use_dictionary=False, column_encoding={_LEAF: "BYTE_STREAM_SPLIT"}),
    "pyarrow, no Arrow schema": partial(with_pyarrow, store_schema=False, compression="gzip"),
    "pyarrow, lists of items": partial(with_pyarrow, use_compliant_nested_type=False),
    "pyarrow, flavour of Spark": partial(with_pyarrow, flavor="spark"),
    "pyarrow, large lists": partial(with_pyarrow, lists=pa.large_list, value=pa.int64()),
    "pyarrow, list views": partial(with_pyarrow, lists=pa.list_view),
    "pyarrow, tiny pages and groups": partial(
        with_pyarrow, row_group_size=2, data_page_size=8, write_batch_size=1, write_page_index=True
    ),
    "pyarrow, checksums": partial(with_pyarrow, write_page_checksum=True, use_content_defined_chunking=True),
    "polars": with_polars,
    "polars, small groups": partial(with_polars, row_group_size=2, data_page_size=64, compression="lz4"),
    "duckdb": with_duckdb,
    "duckdb, version 2": partial(with_duckdb, options=", PARQUET_VERSION v2, COMPRESSION zstd"),
    "arrow-rs": with_arrow_rs,
    "arrow-rs, small groups": partial(with_arrow_rs, max_row_group_size=2, writer_version="parquet_2_0"),
    "Spark, legacy, values may be null": partial(as_older_writer, names=("bag", "array"), nullable=(True, True)),
    "Spark, legacy, values are required": partial(as_older_writer, names=("array",), nullable=_VALUES_REQUIRED),
    "Hive": partial(as_older_writer, names=("bag", "array_element"), nullable=(True, True)),
    "Avro, two levels": partial(as_older_writer, names=("array",), nullable=(False, False)),
    "Thrift": partial(as_older_writer, names=("input_ids_tuple",), nullable=_VALUES_REQUIRED),
    "Protocol Buffers": partial(as_older_writer, names=(), nullable=(False, False), wrapped=False),
}
