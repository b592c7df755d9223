"""Stores with images and weights through a real server to a client: what is asked for arrives, and nothing unasked."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dataserver.client import DataClient
from dataserver.errors import InvalidSpecError
from dataserver.eval_spec import EvalSpec
from dataserver.run_spec import BatchSpec, OrderSpec, RunSpec, Source
from dataserver.testing import running_server

COUNT, WIDTH = 24, 5


def rows() -> list[dict]:
    random = np.random.default_rng(11)
    found = []
    for number in range(COUNT):
        length = int(random.integers(3, 12))
        row = {
            "input_ids": [number] * length,
            "loss_mask": [0] + [1] * (length - 1),
            "loss_weight": (random.integers(1, 9, length) / 8).tolist(),
            "pixel_values": None,
            "image_grid_thw": None,
        }
        if number % 2:
            grid = random.integers(1, 3, (1 + number % 3, 3))
            row["image_grid_thw"] = grid.tolist()
            row["pixel_values"] = np.full((int(grid.prod(axis=1).sum()), WIDTH), number / 2).tolist()
        found.append(row)
    return found


ROWS = rows()


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory):
    schema = pa.schema(
        {
            "input_ids": pa.list_(pa.int32()),
            "loss_mask": pa.list_(pa.int8()),
            "loss_weight": pa.list_(pa.float32()),
            "pixel_values": pa.list_(pa.list_(pa.float32())),
            "image_grid_thw": pa.list_(pa.list_(pa.int64())),
        }
    )
    directory: Path = tmp_path_factory.mktemp("stores")
    table = pa.Table.from_pylist(ROWS, schema)
    pq.write_table(table, directory / "mixed.parquet", row_group_size=5)
    pq.write_table(table.drop_columns(["pixel_values", "image_grid_thw"]), directory / "text.parquet")
    stores = {name: directory / f"{name}.parquet" for name in ("mixed", "text")}
    with running_server(stores) as server:
        yield server.endpoint


def spec(store: str, *, loss_weight: bool | None, images: bool, **batch: int | None) -> RunSpec:
    return RunSpec(
        order=OrderSpec(sources=(Source(store=store, loss_weight=loss_weight),), max_length=16, seed=2),
        batch=BatchSpec(**{"step_samples": 8, "micro_batch_tokens": 32, "max_epochs": 1} | batch),
        images=images,
    )


@pytest.mark.parametrize("ranks", [1, 3])
def test_every_rank_gets_its_images_and_weights_and_all_ranks_of_a_round_the_same_modality(endpoint, ranks):
    name = f"mixed-{ranks}"
    seen, modalities, weight_sums = [], [], []
    with DataClient(endpoint) as client:
        client.create_run(name, spec("mixed", loss_weight=True, images=True))
        attempt = client.begin_attempt(
            name, resume=False, world_size=ranks, dp_world_size=ranks, holder=f"{name} of the test"
        )
        streams = [client.stream(name, attempt, world_rank=r, dp_rank=r, next_step=1) for r in range(ranks)]
        for steps in zip(*streams, strict=True):
            weights = 0.0
            for group in zip(*steps, strict=True):
                modalities.append({batch.images is None for batch in group})
                for batch in group:
                    weights += float(batch.label_weights.sum(dtype=np.float64))
                    seen += samples_of(batch)
            weight_sums.append((steps[0].weight_sum, weights))
            for stream, step in zip(streams, steps, strict=True):
                stream.ack(step)
        described = client.describe_step(name, 1)
        for stream in streams:
            stream.close()
    assert all(len(found) == 1 for found in modalities)
    assert {True, False} == set.union(*modalities)
    assert all(said == pytest.approx(counted) for said, counted in weight_sums)
    assert sorted(seen) == sorted(
        (row["input_ids"], row["loss_weight"], row["pixel_values"] or [], row["image_grid_thw"] or []) for row in ROWS
    )
    shown = {planned.is_image_round for planned in described.micro_batches}
    assert shown == {True, False}


def samples_of(batch):
    found, patch = [], 0
    for at, (begin, length) in enumerate(zip(batch.cu_seqlens, batch.lengths, strict=False)):
        pixels, grids = [], []
        if batch.images is not None:
            own = batch.images.image_grid_thw[batch.images.sub_sequences == at]
            count = int(own.prod(axis=1).sum())
            pixels, grids = batch.images.pixel_values[patch : patch + count].tolist(), own.tolist()
            patch += count
        span = slice(begin, begin + length)
        found.append((batch.tokens[span].tolist(), batch.loss_weight[span].tolist(), pixels, grids))
    return found


@pytest.mark.parametrize(
    ("store", "given", "message"),
    [
        ("text", {"loss_weight": None, "images": False}, "does not say what to do with it"),
        ("mixed", {"loss_weight": True, "images": False}, "the run is for a model of text"),
        ("mixed", {"loss_weight": True, "images": True, "step_rounds": 1, "step_samples": None}, "step_rounds = 1"),
    ],
)
def test_nothing_is_ignored_or_applied_unasked(endpoint, store, given, message):
    with DataClient(endpoint) as client, pytest.raises(InvalidSpecError, match=message):
        client.create_run("refused", spec(store, **given))


def test_weights_that_a_source_leaves_alone_are_not_sent(endpoint):
    with DataClient(endpoint) as client:
        client.create_run("alike", spec("text", loss_weight=False, images=False))
        attempt = client.begin_attempt("alike", resume=False, world_size=1, dp_world_size=1, holder="alike of the test")
        with client.stream("alike", attempt, world_rank=0, dp_rank=0, next_step=1) as stream:
            step = next(stream)
            assert all(batch.loss_weight is None and batch.images is None for batch in step)
            assert step.weight_sum == step.target_count


def test_images_too_large_for_a_message_are_refused_with_the_numbers(endpoint):
    with DataClient(endpoint) as client, pytest.raises(InvalidSpecError, match=r"bytes of images a token \(row \d+"):
        client.create_run("large", spec("mixed", loss_weight=True, images=True, micro_batch_tokens=2**24))


def test_a_store_shows_its_images_and_a_sample_their_number(endpoint):
    with DataClient(endpoint) as client:
        store = client.get_store("mixed")
        assert store.images.rows == COUNT // 2
        assert store.images.patch_values == WIDTH
        assert client.get_store("text").images is None
        first, second = client.list_samples("mixed", begin_row=0, end_row=2)
    assert (first.images, first.patches) == (0, 0)
    assert second.images == len(ROWS[1]["image_grid_thw"])
    assert second.patches == len(ROWS[1]["pixel_values"])
    assert list(second.loss_weight) == ROWS[1]["loss_weight"]


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_held_out_store_with_images_is_read_in_order_where_the_spec_takes_them(endpoint, ranks):
    with DataClient(endpoint) as client:
        taken = EvalSpec(store="mixed", max_length=16, micro_batch_tokens=32, images=True)
        unasked = taken.model_copy(update={"images": False})
        with (
            client.eval_stream(unasked, dp_rank=0, dp_world_size=1) as stream,
            pytest.raises(InvalidSpecError, match="images = true"),
        ):
            list(stream)
        got = []
        for rank in range(ranks):
            with client.eval_stream(taken, dp_rank=rank, dp_world_size=ranks) as stream:
                got.append(list(stream))
    seen = []
    for group in zip(*got, strict=True):
        assert len({batch.images is None for batch in group}) == 1
        for batch in group:
            numbers = batch.tokens[batch.cu_seqlens[:-1]][: len(batch.lengths)].tolist()
            seen += numbers
            if batch.images is not None and numbers:
                assert {number % 2 for number in numbers} == {1}
                first = ROWS[numbers[0]]
                assert batch.images.pixel_values[0].tolist() == first["pixel_values"][0]
    assert seen == list(range(COUNT))
