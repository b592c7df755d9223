"""The share of each store in the tokens of an epoch."""

import pytest

from dataserver.run_spec import OrderSpec, Source
from dataserver.stores import Admission, open_store
from dataserver.streaming.catalog import StoreCatalog
from dataserver.streaming.contexts import build_context
from dataserver.testing import write_store

LENGTHS = {"chat": [10, 20, 30], "code": [60, 60]}


@pytest.fixture(params=[Admission.EAGER, Admission.LAZY])
def stage(request, tmp_path):
    paths = {name: write_store(tmp_path / name, lengths=lengths) for name, lengths in LENGTHS.items()}
    kinds = {"chat": Admission.EAGER, "code": request.param}
    catalog = StoreCatalog(
        {name: open_store(path, index_dir=tmp_path / "index", admission=kinds[name]) for name, path in paths.items()}
    )
    order = OrderSpec(sources=tuple(Source(store=name) for name in LENGTHS), max_length=64)
    yield build_context(order, catalog).stages[0]
    catalog.close()


@pytest.mark.parametrize("stage", [Admission.EAGER], indirect=True)
def test_shares_are_those_of_the_tokens_of_an_epoch(stage):
    assert stage.epoch_tokens == (60.0, 120.0)
    assert stage.token_shares == {"chat": 60 / 180, "code": 120 / 180}
    assert stage.tokens_of([1.5, 0]) == (30.0, 0.0)


@pytest.mark.parametrize("stage", [Admission.LAZY], indirect=True)
def test_there_are_none_where_the_rows_of_a_store_have_lengths_that_nobody_knows(stage):
    assert not stage.epoch_tokens
    assert not stage.token_shares
    assert stage.tokens_of([1.5, 0]) == (30.0, 0.0)


def test_they_are_worked_out_once_a_stage_because_every_seal_asks(stage):
    assert stage.token_shares is stage.token_shares
