"""What the sealed steps of a run add up to: it rides in each seal, so a run that goes back takes it along.

A seal holds the totals up to its step: those of the seal before it and what its own step adds.
They are right however many servers seal, need no write of their own, and are read with one row.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from dataserver.packing.figures import PackingFigures


@dataclass(frozen=True, slots=True, kw_only=True)
class StepServed:
    """What one step adds: how well it is packed, and the tokens of each store in it, without padding."""

    figures: PackingFigures
    store_tokens: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedTotals:
    """The `steps` last sealed steps together; those before them are not in this ledger, or there are none.

    `last`: figures of the last step. `mean`: mean of each figure over the steps. `store_tokens`: tokens
    served of each store, without padding, also of stores that no step draws from any more.
    """

    steps: int
    last: PackingFigures
    mean: PackingFigures
    store_tokens: Mapping[str, int]

    def to_json(self) -> str:
        """Text that `from_json` reads back to the last bit."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote."""
        fields: dict[str, Any] = json.loads(text)
        return cls(**fields | {name: PackingFigures(**fields[name]) for name in ("last", "mean")})


def add_step(totals: SealedTotals | None, step: StepServed) -> SealedTotals:
    """The totals after one step more."""
    if totals is None:
        return SealedTotals(steps=1, last=step.figures, mean=step.figures, store_tokens=dict(step.store_tokens))
    steps = totals.steps + 1
    mean, last = asdict(totals.mean), asdict(step.figures)
    tokens = dict(totals.store_tokens)
    for store, count in step.store_tokens.items():
        tokens[store] = tokens.get(store, 0) + count
    return SealedTotals(
        steps=steps,
        last=step.figures,
        mean=PackingFigures(**{name: mean[name] + (last[name] - mean[name]) / steps for name in mean}),
        store_tokens=tokens,
    )
