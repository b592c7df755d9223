"""How well a plan is packed: three figures that mean something only together."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PackingFigures:
    """`token_efficiency`: tokens over bins times capacity.

    `rank_imbalance`: highest rank cost over mean rank cost.
    `round_inflation`: sum over rounds of the highest cost, over the sum of the mean costs; the
    factor by which imbalance lengthens an FSDP step, where ranks meet in every round.
    """

    token_efficiency: float
    rank_imbalance: float
    round_inflation: float
