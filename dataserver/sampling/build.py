"""From an order spec and what its sources hold to the order."""

from collections.abc import Sequence
from typing import Protocol

from dataserver.run_spec import OrderSpec
from dataserver.sampling.arrangement import derived_seed
from dataserver.sampling.order import SampleOrder
from dataserver.sampling.union import plain_union


class SourceRows(Protocol):
    """What an order may know about a source."""

    @property
    def rows(self) -> int:
        """Kept rows."""


def sample_order(spec: OrderSpec, sources: Sequence[SourceRows], *, stage: int = 0) -> SampleOrder:
    """The order of `spec` as the stage number `stage` of a run; `sources` are those of `spec.sources`.

    Raises `InvalidSpecError` for what cannot be done.
    """
    sizes = tuple(source.rows for source in sources)
    # A later stage begins with the epoch under way, and must not begin with the same rows again.
    seed = derived_seed(spec.seed, "stage", stage) if stage else spec.seed
    return plain_union(sizes, seed, spec.shuffle)
