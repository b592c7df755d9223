"""The name of an order, and the versions of the code that an order and a plan depend on.

Two versions, because two things depend on code (docs/decisions/0002-two-planner-versions.md):
which sample stands at which position, and which samples share a step and a micro-batch. Only
the first makes a cursor foreign.
"""

import hashlib
import json
from collections.abc import Sequence

from dataserver.run_spec import OrderSpec, Shuffle

ORDER_VERSION = 3
"""Raise it with any change of which sample stands at which position: of `sampling`, or of which rows a store keeps.

It is part of the order fingerprint, so checkpoints of another version are refused."""

PLANNER_VERSION = 12
"""Raise it with any change of what is made of equal samples: of the cut, the deal of a window, or `packing`.

It is part of the plan digest, the seal and the deal. Checkpoints of another version go on, except inside a window."""

_FIELDS = ("sources", "stores", "weights", "seed", "shuffle", "max_length", "long_rows", "stages", "code")
_WHOLE_DIGITS = 32
_FIELD_DIGITS = 6


def order_fingerprint(
    order: OrderSpec,
    store_fingerprints: Sequence[str],
    *,
    sampler: str = "",
    before: str = "",
    first_step: int = 1,
) -> str:
    """One line that is equal for equal orders: `<32 hex of the whole>-<6 hex for each field>`.

    `store_fingerprints` are those of `order.sources`, in that order. `sampler`: distribution and version of the one
    that `order` names. A later stage of a run begins at
    `first_step`, and `before` is the fingerprint of the stage before it: so a stage's covers all stages up to it.
    The short digests serve `differing_fields` only.
    """
    values = (
        [[source.store, "loss_weight"] if source.loss_weight else source.store for source in order.sources],
        list(store_fingerprints),
        [[source.weight for source in order.sources], order.weight_unit, order.stopping] if order.weighted else [],
        order.seed,
        _shuffle(order, sampler),
        order.max_length,
        order.long_rows.value,
        [before, first_step],
        ORDER_VERSION,
    )
    fields = dict(zip(_FIELDS, values, strict=True))
    return f"{_digest(fields, _WHOLE_DIGITS)}-" + "".join(_digest(fields[name], _FIELD_DIGITS) for name in _FIELDS)


def _shuffle(order: OrderSpec, sampler: str) -> list[str | int]:
    if order.shuffle is Shuffle.BLOCK:
        return [order.shuffle, order.block_window]
    return [order.shuffle, order.sampler, sampler] if order.shuffle is Shuffle.CUSTOM else [order.shuffle]


def differing_fields(a: str, b: str) -> tuple[str, ...]:
    """Names of the fields in which two order fingerprints differ; empty when they are equal.

    `("fingerprint",)` when one of them is not a fingerprint at all.
    """
    if a == b:
        return ()
    parts_a, parts_b = _parts(a), _parts(b)
    if parts_a is None or parts_b is None:
        return ("fingerprint",)
    return tuple(name for name, x, y in zip(_FIELDS, parts_a, parts_b, strict=True) if x != y) or ("fingerprint",)


def _parts(fingerprint: str) -> list[str] | None:
    whole, dash, short = fingerprint.partition("-")
    if not dash or len(whole) != _WHOLE_DIGITS or len(short) != _FIELD_DIGITS * len(_FIELDS):
        return None
    return [short[at : at + _FIELD_DIGITS] for at in range(0, len(short), _FIELD_DIGITS)]


def _digest(value: object, digits: int) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=digits // 2, person=b"ds order").hexdigest()
