"""The order fingerprint names an order, and two of them tell what differs."""

import pytest

from dataserver.planning import fingerprint
from dataserver.planning.fingerprint import differing_fields, order_fingerprint
from dataserver.run_spec import LongRows, OrderSpec, Shuffle, Source
from dataserver.weighting import Stopping, WeightUnit

ORDER = OrderSpec(sources=(Source(store="chat"), Source(store="code")), seed=7, max_length=512)
WEIGHTED = ORDER.model_copy(
    update={"sources": (Source(store="chat", weight=1), Source(store="code", weight=2)), "shuffle": Shuffle.BLOCK}
)
STORES = ["a" * 32, "b" * 32]


def weighted(*weights):
    return tuple(Source(store=name, weight=weight) for name, weight in zip(("chat", "code"), weights, strict=True))


def changed(**fields):
    return ORDER.model_copy(update=fields)


@pytest.mark.parametrize(
    ("order", "stores", "fields"),
    [
        (changed(seed=8), STORES, ("seed",)),
        (changed(shuffle=Shuffle.SEQUENTIAL), STORES, ("shuffle",)),
        (changed(shuffle=Shuffle.BLOCK), STORES, ("shuffle",)),
        (changed(max_length=513), STORES, ("max_length",)),
        (changed(sources=weighted(1, 1)), STORES, ("weights",)),
        (changed(long_rows=LongRows.DROP), STORES, ("long_rows",)),
        (changed(sources=(Source(store="chat"), Source(store="math"))), STORES, ("sources",)),
        (changed(sources=ORDER.sources[::-1]), STORES[::-1], ("sources", "stores")),
        (ORDER, STORES[::-1], ("stores",)),
        (ORDER, [STORES[0], "c" * 32], ("stores",)),
        (changed(seed=0, max_length=64), [STORES[0], "c" * 32], ("stores", "seed", "max_length")),
    ],
)
def test_every_field_counts_and_is_named(order, stores, fields):
    base, other = order_fingerprint(ORDER, STORES), order_fingerprint(order, stores)
    assert base[:32] != other[:32]
    assert differing_fields(base, other) == differing_fields(other, base) == fields


@pytest.mark.parametrize(
    ("fields", "differ"),
    [
        ({"sources": weighted(1, 3)}, ("weights",)),
        ({"weight_unit": WeightUnit.TOKENS}, ("weights",)),
        ({"stopping": Stopping.FIRST_EXHAUSTED}, ("weights",)),
        ({"block_window": 32}, ("shuffle",)),
        ({"shuffle": Shuffle.CUSTOM, "sampler": "mine"}, ("shuffle",)),
    ],
)
def test_whatever_moves_samples_counts_and_is_named(fields, differ):
    base = order_fingerprint(WEIGHTED, STORES)
    assert differing_fields(base, order_fingerprint(WEIGHTED.model_copy(update=fields), STORES)) == differ


def test_another_version_of_a_sampler_is_another_order():
    order = changed(shuffle=Shuffle.CUSTOM, sampler="mine")
    old, new = (order_fingerprint(order, STORES, sampler=f"mine {version}") for version in ("1.0", "1.1"))
    assert differing_fields(old, new) == ("shuffle",)


def test_what_has_no_say_in_an_order_does_not_count():
    assert order_fingerprint(ORDER, STORES) == order_fingerprint(changed(weight_unit=WeightUnit.TOKENS), STORES)


def test_equal_orders_have_equal_fingerprints():
    again = OrderSpec.model_validate_json(ORDER.model_dump_json())
    assert order_fingerprint(again, tuple(STORES)) == order_fingerprint(ORDER, STORES)
    assert differing_fields(order_fingerprint(again, STORES), order_fingerprint(ORDER, STORES)) == ()


def test_another_order_version_is_another_order(monkeypatch):
    base = order_fingerprint(ORDER, STORES)
    monkeypatch.setattr(fingerprint, "ORDER_VERSION", fingerprint.ORDER_VERSION + 1)
    assert differing_fields(base, order_fingerprint(ORDER, STORES)) == ("code",)


def test_another_planner_version_is_the_same_order(monkeypatch):
    base = order_fingerprint(ORDER, STORES)
    monkeypatch.setattr(fingerprint, "PLANNER_VERSION", fingerprint.PLANNER_VERSION + 1)
    assert order_fingerprint(ORDER, STORES) == base


@pytest.mark.parametrize("text", ["", "-", "x", "0" * 32, "0" * 32 + "-" + "0" * 41, "a-b-c"])
def test_what_is_no_fingerprint_differs_as_a_whole(text):
    assert differing_fields(text, order_fingerprint(ORDER, STORES)) == ("fingerprint",)


def test_a_fingerprint_is_one_short_line_of_hex():
    whole, short = order_fingerprint(ORDER, STORES).split("-")
    assert (len(whole), len(short)) == (32, 54)
    assert int(whole + short, 16) > 0
