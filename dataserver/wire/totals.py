"""What sealed steps add up to, as values."""

from dataclasses import dataclass

from dataserver.v1 import run_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class FiguresInfo:
    """How well steps are packed. The three mean something only together."""

    token_efficiency: float
    rank_imbalance: float
    round_inflation: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreTokensInfo:
    """What was served of one store: tokens without padding, and their part of the tokens of all stores."""

    store: str
    tokens: int
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TotalsInfo:
    """What the `steps` sealed steps up to the run's `sealed_step` add up to; earlier ones the ledger does not know."""

    steps: int
    last: FiguresInfo
    mean: FiguresInfo
    stores: tuple[StoreTokensInfo, ...]


def totals_from_proto(message: run_pb2.SealedTotals) -> TotalsInfo:
    """Read what sealed steps add up to."""
    return TotalsInfo(
        steps=message.steps,
        last=figures_from_proto(message.last),
        mean=figures_from_proto(message.mean),
        stores=tuple(
            StoreTokensInfo(store=each.store, tokens=each.tokens, share=each.share) for each in message.stores
        ),
    )


def figures_from_proto(message: run_pb2.PackingFigures) -> FiguresInfo:
    """Read the three figures of a packing."""
    return FiguresInfo(
        token_efficiency=message.token_efficiency,
        rank_imbalance=message.rank_imbalance,
        round_inflation=message.round_inflation,
    )
