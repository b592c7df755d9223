"""The order fingerprint names an order, and two of them tell what differs."""

import pytest

from dataserver.planning import fingerprint
from dataserver.planning.fingerprint import differing_fields, order_fingerprint
from dataserver.run_spec import LongRows, OrderSpec, Shuffle, Source

ORDER = OrderSpec(sources=(Source(store="chat"), Source(store="code")), seed=7, max_length=512)
STORES = ["a" * 32, "b" * 32]


def changed(**fields):
    return ORDER.model_copy(update=fields)


@pytest.mark.parametrize(
    ("order", "stores", "fields"),
    [
        (changed(seed=8), STORES, ("seed",)),
        (changed(shuffle=Shuffle.SEQUENTIAL), STORES, ("shuffle",)),
        (changed(max_length=513), STORES, ("max_length",)),
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
    assert (len(whole), len(short)) == (32, 48)
    assert int(whole + short, 16) > 0
