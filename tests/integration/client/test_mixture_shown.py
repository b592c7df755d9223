"""A run shows the shares that its weights ask for beside those that were served: recounted here from what arrived."""

from collections import Counter
from fractions import Fraction

import pytest

from dataserver.cli.main import main
from dataserver.client import DataClient
from dataserver.run_spec import BatchSpec, OrderSpec, RunSpec, Source
from dataserver.testing import running_server, write_store

LENGTHS = {"chat": [5, 9, 4, 10] * 10, "code": [20, 31, 24] * 10, "math": [7, 13] * 20}
WEIGHTS = {"chat": 0.5, "code": 0.3, "math": 0.2}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stores")
    stores = {name: write_store(folder / name, lengths=lengths) for name, lengths in LENGTHS.items()}
    with running_server(stores) as running:
        yield running


def order(weights, unit):
    sources = tuple(Source(store=name, weight=weight) for name, weight in weights.items())
    return OrderSpec(sources=sources, max_length=32, seed=3, weight_unit=unit)


def spec(unit, **batch):
    return RunSpec(order=order(WEIGHTS, unit), batch=BatchSpec(step_samples=13, micro_batch_tokens=64, **batch))


def train(client, run, steps):
    attempt = client.begin_attempt(run, resume=False, world_size=1, dp_world_size=1, holder="one rank")
    with client.stream(run, attempt, world_rank=0, dp_rank=0, next_step=1) as stream:
        for step in stream:
            list(step)
            stream.ack(step)
            if step.number == steps:
                return step.end
    raise AssertionError("the run ended early")


def counted(client, run, steps):
    """Samples and tokens of each store in these steps, from the rows that were planned."""
    samples, tokens = Counter(), Counter()
    for step in steps:
        for micro_batch in client.describe_step(run, step).micro_batches:
            for sample in micro_batch.samples:
                samples[sample.store] += 1
                tokens[sample.store] += LENGTHS[sample.store][sample.row]
    return samples, tokens


@pytest.mark.parametrize("unit", ["samples", "tokens"])
def test_draws_are_those_that_were_served_and_within_the_bound_of_their_target(server, unit):
    means = {name: Fraction(sum(lengths), len(lengths)) for name, lengths in LENGTHS.items()}
    exact = {name: Fraction(str(weight)) for name, weight in WEIGHTS.items()}
    rates = {name: weight / means[name] if unit == "tokens" else weight for name, weight in exact.items()}
    of_tokens = {name: rate * means[name] for name, rate in rates.items()}
    levels = {"chat": 1, "code": 2, "math": 2}
    with DataClient(server.endpoint) as client:
        assert client.create_run(f"by-{unit}", spec(unit, max_steps=8)).mixture is None
        end = train(client, f"by-{unit}", 8)
        run = client.get_run(f"by-{unit}")
        samples, tokens = counted(client, f"by-{unit}", range(1, 9))
    mixture = run.mixture
    assert (mixture.stage, mixture.draws) == (0, 8 * 13)
    assert {each.store: each.draws for each in mixture.sources} == samples
    assert {each.store: each.tokens for each in run.totals.stores} == tokens
    for each in mixture.sources:
        assert each.share == samples[each.store] / 104
        assert each.target_share == pytest.approx(float(rates[each.store] / sum(rates.values())), rel=1e-12)
        tends_to = float(of_tokens[each.store] / sum(of_tokens.values()))
        assert each.target_token_share == pytest.approx(tends_to, rel=1e-12)
        assert each.share_error == pytest.approx(levels[each.store] / 2 * (end.epoch + 1) / 104, rel=1e-5)
        assert abs(each.share - each.target_share) <= each.share_error
    if unit == "tokens":
        assert [each.target_token_share for each in mixture.sources] == pytest.approx([0.5, 0.3, 0.2], rel=1e-12)


def test_a_stage_counts_from_its_first_step_and_a_window_when_it_is_over(server, capsys):
    with DataClient(server.endpoint) as client:
        client.create_run("amended", spec("samples", max_steps=8, lookahead_steps=2))
        client.amend_run("amended", 5, order({"code": 1, "math": 3}, "samples"))
        train(client, "amended", 8)
        run = client.get_run("amended")
        samples, _ = counted(client, "amended", range(5, 9))
    assert (run.mixture.stage, run.mixture.draws) == (1, 4 * 13)
    assert {each.store: (each.draws, each.target_share) for each in run.mixture.sources} == {
        "code": (samples["code"], 0.25),
        "math": (samples["math"], 0.75),
    }
    assert main(["run", "show", "amended", "--endpoint", server.endpoint]) == 0
    shown = capsys.readouterr().out
    assert "52 draws" in shown
    assert "code 25.000%, target 25.000% ± 0.962%" in " ".join(shown.split())


def test_a_run_without_weights_shows_no_mixture(server):
    united = OrderSpec(sources=(Source(store="chat"), Source(store="code")), max_length=32)
    with DataClient(server.endpoint) as client:
        client.create_run("united", RunSpec(order=united, batch=BatchSpec(step_samples=13, micro_batch_tokens=64)))
        train(client, "united", 2)
        assert client.get_run("united").mixture is None
