"""From an order spec and what its sources hold to the order.

no weights   one arrangement of the rows of all sources, laid end to end
weights      a schedule of the sources, and an arrangement of each
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dataserver.errors import InvalidSpecError
from dataserver.run_spec import OrderSpec, Shuffle
from dataserver.sampling.arrangement import Arrangement, Independent, Shuffled, Stored, derived_seed
from dataserver.sampling.blocks import BlockShuffled
from dataserver.sampling.custom import CustomArrangement, CustomSampler
from dataserver.sampling.order import SampleOrder, check_epoch_size
from dataserver.sampling.schedule import Schedule
from dataserver.sampling.union import UnionOrder
from dataserver.sampling.weighted import WeightedOrder
from dataserver.weighting import Stopping, WeightUnit


class SourceRows(Protocol):
    """What an order may know about a source."""

    @property
    def rows(self) -> int:
        """Kept rows."""

    @property
    def kept_tokens(self) -> int:
        """Tokens that they have as they are served."""

    def block_rows(self) -> NDArray[np.int64]:
        """Kept rows of each block, int64[b], in the order of the rows."""


def sample_order(
    spec: OrderSpec, sources: Sequence[SourceRows], *, stage: int = 0, sampler: CustomSampler | None = None
) -> SampleOrder:
    """The order of `spec` as the stage number `stage` of a run; `sources` are those of `spec.sources`.

    `sampler`: the one that `spec.sampler` names. Raises `InvalidSpecError` for what cannot be done.
    """
    if spec.weighted:
        return _weighted(spec, sources, sampler)
    # A later stage begins with the epoch under way, and must not begin with the same rows again.
    seed = derived_seed(spec.seed, "stage", stage) if stage else spec.seed
    return UnionOrder(tuple(source.rows for source in sources), _arranged(spec, sources, seed, sampler))


def _weighted(spec: OrderSpec, sources: Sequence[SourceRows], sampler: CustomSampler | None) -> WeightedOrder:
    names = [source.store for source in spec.sources]
    schedule = Schedule(names, [source.rows for source in sources], _rates(spec, sources), spec.stopping)
    # By the store's name: its rows go on in the same order when a later stage lists it elsewhere.
    seeds = [derived_seed(spec.seed, "source", name) for name in names]
    arrangements = [_arranged(spec, [source], seed, sampler) for source, seed in zip(sources, seeds, strict=True)]
    once = spec.stopping is Stopping.ALL_EXHAUSTED_WITHOUT_REPLACEMENT
    return WeightedOrder(names, arrangements, schedule, each_row_once=once)


def _rates(spec: OrderSpec, sources: Sequence[SourceRows]) -> list[Fraction]:
    """How often each source is drawn, relative to the others.

    A share of tokens is divided by the mean length of a row: over each of its own epochs a source then gives exactly
    its share, and in between it is off by what the lengths of the rows drawn so far are off their mean.
    """
    # The shortest decimal that is this float: 0.1 means a tenth.
    weights = [Fraction(repr(source.weight or 0)) for source in spec.sources]
    if spec.weight_unit is WeightUnit.SAMPLES:
        return weights
    for source, rows in zip(spec.sources, sources, strict=True):
        if source.weight and rows.rows and not rows.kept_tokens:
            raise InvalidSpecError(
                f"source {source.store!r}: how long its rows are is not known before they are read, so there is no "
                "share of tokens: use weight_unit = samples, or admit the store eagerly",
                store=source.store,
            )
    return [
        weight * source.rows / source.kept_tokens if source.kept_tokens else weight
        for weight, source in zip(weights, sources, strict=True)
    ]


def _arranged(spec: OrderSpec, sources: Sequence[SourceRows], seed: int, sampler: CustomSampler | None) -> Arrangement:
    sizes = tuple(source.rows for source in sources)
    size = check_epoch_size(sum(sizes))
    match spec.shuffle:
        case Shuffle.SEQUENTIAL:
            return Stored(size=size)
        case Shuffle.BLOCK:
            return BlockShuffled(np.concatenate([source.block_rows() for source in sources]), spec.block_window, seed)
        case Shuffle.CUSTOM:
            if sampler is None:
                raise InvalidSpecError(f"sampler {spec.sampler!r} is not there", field="sampler")
            return CustomArrangement(sampler, sizes, seed)
        case Shuffle.FULL if spec.stopping is Stopping.WITH_REPLACEMENT:
            return Independent(size=size, seed=seed)
        case Shuffle.FULL:
            return Shuffled(size=size, seed=seed)
