"""From stores through plan and message to arrays: mixes of text and images, weighted or not, equal a reference."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataserver.batching.encode import encode_planned
from dataserver.planning.planner import Planner
from dataserver.run_spec import BatchSpec, OrderSpec, Source
from dataserver.sampling.build import sample_order
from dataserver.stores import open_store
from dataserver.stores.destination import Destination
from dataserver.streaming.columns import source_table
from dataserver.wire.responses import decode_response

MAX_LENGTH, WIDTH = 16, 3
SCHEMA = pa.schema(
    {
        "input_ids": pa.list_(pa.int32()),
        "loss_mask": pa.list_(pa.int8()),
        "loss_weight": pa.list_(pa.float32()),
        "pixel_values": pa.list_(pa.list_(pa.float16())),
        "image_grid_thw": pa.list_(pa.list_(pa.int64())),
    }
)


def decoded_one(data):
    """What a response carries, which is one thing."""
    (one,) = decode_response(data)
    return one


@st.composite
def rows_of_a_store(draw):
    """Rows of 1 to 24 tokens; some have images."""
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    rows = []
    for has_images in draw(st.lists(st.booleans(), min_size=1, max_size=25)):
        length = int(random.integers(1, 25))
        row = {
            "input_ids": random.integers(0, 70_000, length).tolist(),
            "loss_mask": random.integers(0, 2, length).tolist(),
            "loss_weight": (random.integers(0, 5, length) / 4).tolist(),
            "pixel_values": None,
            "image_grid_thw": None,
        }
        if has_images:
            grid = random.integers(1, 3, (int(random.integers(1, 3)), 3))
            row["image_grid_thw"] = grid.tolist()
            row["pixel_values"] = (random.integers(-8, 8, (int(grid.prod(axis=1).sum()), WIDTH)) / 2).tolist()
        rows.append(row)
    return rows


def write(path, rows, form):
    table = pa.Table.from_pylist(rows, SCHEMA)
    if form == "parquet":
        pq.write_table(table, path, row_group_size=6)
    else:
        options = pa.ipc.IpcWriteOptions(compression="zstd" if form == "zstd" else None)
        with pa.ipc.new_file(path, SCHEMA, options=options) as writer:
            writer.write_table(table, max_chunksize=6)
    return path


def expected(rows, *, weighted):
    """What is served of each row, by walking them one by one."""
    found = []
    for row in rows:
        length = min(len(row["input_ids"]), MAX_LENGTH)
        too_long = row["pixel_values"] is not None and len(row["input_ids"]) > MAX_LENGTH
        if too_long or not any(row["loss_mask"][1:length]):
            continue
        found.append(
            (
                row["input_ids"][:length],
                row["loss_mask"][:length],
                row["loss_weight"][:length] if weighted else [1.0] * length,
                row["pixel_values"] or [],
                row["image_grid_thw"] or [],
            )
        )
    return sorted(found)


def sub_sequences(micro_batch):
    """The samples of a micro-batch, one by one."""
    images = micro_batch.images
    patch = 0
    for at, (begin, length) in enumerate(zip(micro_batch.cu_seqlens, micro_batch.lengths, strict=False)):
        span = slice(begin, begin + length)
        pixels, grids = [], []
        if images is not None:
            grids = images.image_grid_thw[images.sub_sequences == at]
            count = int(grids.prod(axis=1).sum())
            pixels = images.pixel_values[patch : patch + count].tolist()
            patch, grids = patch + count, grids.tolist()
        weights = [1.0] * int(length) if micro_batch.loss_weight is None else micro_batch.loss_weight[span].tolist()
        yield (
            micro_batch.tokens[span].tolist(), micro_batch.loss_mask[span].astype(int).tolist(), weights, pixels, grids,
        )  # fmt: skip
    assert images is None or patch == len(images.pixel_values)


def served(stores, order, batch, ranks):
    """Every sample of an epoch, and the plans; checks what holds for each round and step."""
    views = [store.view(MAX_LENGTH) for store in stores]
    table = source_table(order, stores, views)
    planner = Planner.of_order(sample_order(order, views), table, "order")
    found = []
    cursor = planner.initial_cursor()
    while hasattr(plan := planner.plan(cursor, batch, ranks), "rounds"):
        weight_sum = 0.0
        for number in range(len(plan.rounds)):
            rounds = range(number, number + 1)
            place = {"rounds": rounds, "alignment": batch.alignment, "pad_to": batch.pad_to, "sync_weights": False}
            group = [
                decoded_one(encode_planned(plan, table, dp_rank=rank, **place).some(0, 1)) for rank in range(ranks)
            ]
            assert len({micro_batch.images is None for micro_batch in group}) == 1
            for micro_batch in group:
                found += list(sub_sequences(micro_batch))
                weight_sum += float(micro_batch.label_weights.sum(dtype=np.float64))
        assert plan.weight_sum == pytest.approx(weight_sum, rel=1e-12, abs=1e-12)
        cursor = plan.end
    return sorted(found)


@settings(max_examples=25)
@given(
    first=rows_of_a_store(),
    second=rows_of_a_store(),
    weighted=st.tuples(st.booleans(), st.booleans()),
    ranks=st.integers(1, 3),
    batch=st.sampled_from(
        [
            {"step_tokens": 60},
            {"step_samples": 5, "pad_to": 8, "alignment": 4},
            {"step_rounds": 2},
            {"step_tokens": 40, "lookahead_steps": 3},
        ]
    ),
    forms=st.sampled_from([("arrow", "parquet"), ("parquet", "zstd"), ("zstd", "arrow")]),
)
def test_an_epoch_is_every_kept_row_with_its_weights_and_its_images(
    tmp_path_factory, first, second, weighted, ranks, batch, forms
):
    keeps = [expected(rows, weighted=uses) for rows, uses in zip((first, second), weighted, strict=True)]
    if not all(keeps):
        return
    directory = tmp_path_factory.mktemp("stores")
    paths = [
        write(directory / f"{name}.{'parquet' if form == 'parquet' else 'arrow'}", rows, form)
        for name, rows, form in zip("ab", (first, second), forms, strict=True)
    ]
    stores = [open_store(path, index_dir=directory / "index") for path in paths]
    sources = tuple(Source(store=name, loss_weight=uses) for name, uses in zip("ab", weighted, strict=True))
    order = OrderSpec(sources=sources, max_length=MAX_LENGTH, seed=3)
    spec = BatchSpec(micro_batch_tokens=32, max_epochs=1, **batch)
    assert served(stores, order, spec, ranks) == sorted(keeps[0] + keeps[1])
    for store in stores:
        store.close()


def test_mapped_values_go_into_the_message_from_the_map_itself(tmp_path):
    rows = [
        {
            "input_ids": [1, 2],
            "loss_mask": [1, 1],
            "loss_weight": [1.0, 0.5],
            "pixel_values": [[1.0, 2.0, 3.0]],
            "image_grid_thw": [[1, 1, 1]],
        }
    ]
    with open_store(write(tmp_path / "a.arrow", rows, "arrow"), index_dir=tmp_path / "index") as store:
        view, rows = store.view(MAX_LENGTH), np.array([0])
        read = Destination.end_to_end(view.lengths(rows), pixel_bytes=2)
        view.read(rows, view.lengths(rows), read)
        assert all(isinstance(piece, memoryview) for piece in (*read.grids, *read.pixels))
        wider = Destination.end_to_end(view.lengths(rows), weights=True, pixel_bytes=4)
        view.read(rows, view.lengths(rows), wider)
        assert np.frombuffer(wider.pixels[0], dtype="<f4").tolist() == [1.0, 2.0, 3.0]
        assert wider.loss_weight.tolist() == [1.0, 0.5]
