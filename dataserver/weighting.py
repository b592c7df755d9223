"""How the sources of a mixture are weighted: what weights are shares of, and when an epoch of them ends."""

from collections.abc import Sequence
from enum import StrEnum


class WeightUnit(StrEnum):
    """What the weights of the sources are shares of."""

    SAMPLES = "samples"
    TOKENS = "tokens"


class Stopping(StrEnum):
    """When an epoch of weighted sources ends; `sampling.schedule` says it exactly."""

    FIRST_EXHAUSTED = "first_exhausted"
    ALL_EXHAUSTED = "all_exhausted"
    ALL_EXHAUSTED_WITHOUT_REPLACEMENT = "all_exhausted_without_replacement"
    WITH_REPLACEMENT = "with_replacement"


DEFAULT_UNIT = WeightUnit.SAMPLES
DEFAULT_STOPPING = Stopping.ALL_EXHAUSTED


def check_weights(weights: Sequence[float | None], unit: WeightUnit, stopping: Stopping) -> None:
    """Raise `ValueError` unless all sources have a weight and not all 0, or none has one and nothing needs it."""
    if len({weight is None for weight in weights}) > 1:
        raise ValueError(f"weights of the sources are {list(weights)}: give each source a weight, or none of them")
    if None not in weights:
        if not any(weights):
            raise ValueError("the weights of all sources are 0: nothing would be drawn")
        return
    for name, value, default in (("weight_unit", unit, DEFAULT_UNIT), ("stopping", stopping, DEFAULT_STOPPING)):
        if value != default:
            raise ValueError(f"{name} = {value} says how sources are weighted, but the sources have no weight")
