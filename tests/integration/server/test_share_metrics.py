"""Metrics tell what part of a run's tokens each store gave, beside the part that it was meant to give."""

import math
import urllib.request
from collections import Counter

import pytest
from prometheus_client.parser import text_string_to_metric_families
from serverlab import PATIENCE_S

from dataserver.client import DataClient
from dataserver.run_spec import BatchSpec, OrderSpec, RunSpec, Shuffle, Source
from dataserver.testing import running_server, write_store

LENGTHS = {"chat": [5, 9, 4, 10] * 100, "code": [20, 31, 24] * 20, "math": [7, 13] * 40}


@pytest.fixture
def server(tmp_path):
    stores = {name: write_store(tmp_path / name, lengths=lengths) for name, lengths in LENGTHS.items()}
    lazy = {"path": write_store(tmp_path / "lazy", lengths=[8, 16] * 50, format="parquet"), "admission": "lazy"}
    with running_server(stores | {"lazy": lazy}, metrics_listen="127.0.0.1:0", lease_s=1.0) as running:
        yield running


def order(weights, **fields):
    sources = tuple(Source(store=name, weight=weight) for name, weight in weights.items())
    return OrderSpec(sources=sources, max_length=32, seed=3, **fields)


def train(client, run, spec):
    """A whole run; the tokens served of each store."""
    client.create_run(run, spec)
    attempt = client.begin_attempt(run, resume=False, world_size=1, dp_world_size=1, holder="one rank")
    tokens = Counter()
    with client.stream(run, attempt, world_rank=0, dp_rank=0, next_step=1) as stream:
        for step in stream:
            list(step)
            for micro_batch in client.describe_step(run, step.number).micro_batches:
                for sample in micro_batch.samples:
                    tokens[sample.store] += sample.length
            stream.ack(step)
    return tokens


def gauge(server, name, run):
    """The values of a gauge of a run, by store."""
    page = urllib.request.urlopen(f"http://{server.metrics_endpoint}/metrics", timeout=PATIENCE_S).read().decode()
    found = [sample for family in text_string_to_metric_families(page) for sample in family.samples]
    return {each.labels["store"]: each.value for each in found if each.name == name and each.labels["run"] == run}


def test_an_epoch_of_weighted_sources_has_the_shares_that_their_weights_say(server):
    weights = {"chat": 0.5, "code": 0.3, "math": 0.2}
    batch = BatchSpec(step_samples=40, micro_batch_tokens=64, max_epochs=1)
    with DataClient(server.endpoint) as client:
        served = train(client, "run", RunSpec(order=order(weights, weight_unit="tokens"), batch=batch))
    realised, target = (
        gauge(server, f"dataserver_run_{kind}", "run") for kind in ("token_share", "target_token_share")
    )
    assert realised == pytest.approx({name: count / served.total() for name, count in served.items()}, rel=1e-12)
    assert gauge(server, "dataserver_run_tokens", "run") == served
    assert target == pytest.approx(weights, rel=0.005)
    assert realised == pytest.approx(target, rel=0.02)


def test_united_sources_are_meant_to_give_what_they_hold(server):
    spec = RunSpec(
        order=order({"chat": None, "math": None}), batch=BatchSpec(step_samples=8, micro_batch_tokens=64, max_steps=3)
    )
    with DataClient(server.endpoint) as client:
        train(client, "run", spec)
    held = {name: sum(LENGTHS[name]) for name in ("chat", "math")}
    target = gauge(server, "dataserver_run_target_token_share", "run")
    assert target == pytest.approx({name: tokens / sum(held.values()) for name, tokens in held.items()}, rel=1e-12)


def test_a_store_of_an_earlier_stage_keeps_its_tokens_and_is_meant_to_give_no_more(server):
    batch = BatchSpec(step_samples=20, micro_batch_tokens=64, max_steps=6)
    spec = RunSpec(order=order({"chat": 1, "code": 1}), batch=batch)
    with DataClient(server.endpoint) as client:
        client.create_run("run", spec)
        client.amend_run("run", 4, order({"code": 1, "math": 3}))
        served = train(client, "run", spec)
    target = gauge(server, "dataserver_run_target_token_share", "run")
    code, math_tokens = 75 / 3, 3 * 20 / 2
    expected = {"chat": 0, "code": code / (code + math_tokens), "math": math_tokens / (code + math_tokens)}
    assert target == pytest.approx(expected, rel=0.02)
    realised = gauge(server, "dataserver_run_token_share", "run")
    assert realised == pytest.approx({name: count / served.total() for name, count in served.items()}, rel=1e-12)
    assert set(realised) == {"chat", "code", "math"}


def test_where_lengths_are_not_known_no_part_is_meant(server):
    spec = RunSpec(
        order=order({"chat": None, "lazy": None}, shuffle=Shuffle.BLOCK, block_window=2),
        batch=BatchSpec(step_samples=30, micro_batch_tokens=64, max_steps=2),
    )
    with DataClient(server.endpoint) as client:
        train(client, "run", spec)
    target = gauge(server, "dataserver_run_target_token_share", "run")
    assert set(target) == {"chat", "lazy"}
    assert all(map(math.isnan, target.values()))
    assert sum(gauge(server, "dataserver_run_token_share", "run").values()) == pytest.approx(1)


def test_the_shares_of_a_deleted_run_go_with_it_and_others_stay(server):
    spec = RunSpec(order=order({"chat": None}), batch=BatchSpec(step_samples=8, micro_batch_tokens=64, max_steps=1))
    names = [f"dataserver_run_{kind}" for kind in ("tokens", "token_share", "target_token_share")]
    with DataClient(server.endpoint) as client:
        for run in ("run", "other"):
            train(client, run, spec)
        client.delete_run("run")
    assert [gauge(server, name, "run") for name in names] == [{}] * 3
    assert [gauge(server, name, "other") for name in names[1:]] == [{"chat": 1}] * 2
