"""The cursor: where the next step begins.

A cursor names no rank, no world size, no host and no random state. It travels with every
step, lies inside every checkpoint, and stands in the ledger; all three hold the same value.
"""

import json
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from dataserver.errors import InvalidRequestError


@dataclass(frozen=True, slots=True, kw_only=True)
class Deal:
    """The inputs by which a window's samples were dealt out to its steps.

    A resume at another world size keeps the deal and repacks each remaining step.
    """

    dp_world_size: int
    micro_batch_tokens: int
    alignment: int
    cost_linear: int
    cost_quadratic: int
    policy: str
    planner_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A lookahead window under way: `steps_done` of `steps`, over `samples` samples.

    Like `Cursor.position` it counts rows of lazily admitted stores of which nothing is served, too.
    """

    steps: int
    steps_done: int
    samples: int
    deal: Deal


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """Where the next step, `step + 1`, begins.

    `step` counts optimizer steps done and so is the policy version that belongs here.
    `stage` is that of the step that ends here; the next one may be the first of another stage.
    `epoch` and `position` (samples of the epoch consumed, with the rows of lazily admitted stores
    that were passed over) stand at the window's start while `window` is set, and so does
    `source_positions`: samples drawn of each source since the run began, in later stages that draw
    by weight; elsewhere it is empty.
    """

    order_fingerprint: str
    stage: int = 0
    step: int = 0
    epoch: int = 0
    position: int = 0
    source_positions: tuple[int, ...] = ()
    window: Window | None = None

    def to_json(self) -> str:
        """Canonical JSON: equal cursors give equal text."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote; anything else raises `InvalidRequestError`."""
        try:
            fields: dict[str, Any] = json.loads(text)
            window = fields.pop("window")
            cursor = cls(**fields | {"source_positions": tuple(fields["source_positions"])})
            if window is not None:
                deal = Deal(**window.pop("deal"))
                cursor = replace(cursor, window=Window(**window, deal=deal))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise InvalidRequestError(f"not a cursor: {text[:200]!r} ({error})") from error
        return cursor
