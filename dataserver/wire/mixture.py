"""How the weights of a run's sources are kept, as values."""

from dataclasses import dataclass

from dataserver.v1 import run_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceShareInfo:
    """Samples drawn of one source, and their part of all: `target_share` by the weights, off by `share_error` at most.

    `target_token_share`: what its part of the tokens tends to; None where lengths are only known once they are read.
    """

    store: str
    draws: int
    share: float
    target_share: float
    share_error: float
    target_token_share: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureInfo:
    """What `stage` has drawn by weight since it began."""

    stage: int
    draws: int
    sources: tuple[SourceShareInfo, ...]


def mixture_from_proto(message: run_pb2.Mixture) -> MixtureInfo:
    """Read what was drawn by weight."""
    return MixtureInfo(
        stage=message.stage,
        draws=message.draws,
        sources=tuple(
            SourceShareInfo(
                store=each.store,
                draws=each.draws,
                share=each.share,
                target_share=each.target_share,
                share_error=each.share_error,
                target_token_share=each.target_token_share if each.HasField("target_token_share") else None,
            )
            for each in message.sources
        ),
    )
