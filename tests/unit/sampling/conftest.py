"""Sources as orders see them: how many rows, how many tokens, in which blocks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from dataserver.run_spec import OrderSpec, Source
from dataserver.sampling.build import sample_order
from dataserver.sampling.custom import CustomSampler
from dataserver.sampling.order import SampleOrder, Samples


@dataclass(frozen=True)
class Rows:
    """A source of `rows` rows of 10 tokens, unless said otherwise, in blocks of 10 rows, unless said otherwise."""

    rows: int
    tokens: int | None = None
    blocks: tuple[int, ...] | None = None

    @property
    def kept_tokens(self) -> int:
        return self.rows * 10 if self.tokens is None else self.tokens

    def block_rows(self) -> np.ndarray:
        blocks = self.blocks or (10,) * (self.rows // 10) + (self.rows % 10,)
        return np.array(blocks, dtype=np.int64)


def order_over(
    sources: Sequence[Rows],
    weights: Sequence[float] | None = None,
    *,
    stage: int = 0,
    sampler: CustomSampler | None = None,
    names: Sequence[str] | None = None,
    **fields: object,
) -> SampleOrder:
    names = names or [f"store-{number}" for number in range(len(sources))]
    weight = weights or [None] * len(sources)
    listed = tuple(Source(store=name, weight=share) for name, share in zip(names, weight, strict=True))
    spec = OrderSpec(sources=listed, sampler=sampler.name if sampler else "", **{"seed": 7, "max_length": 512} | fields)
    return sample_order(spec, sources, stage=stage, sampler=sampler)


@pytest.fixture(scope="session")
def rows() -> type[Rows]:
    return Rows


@pytest.fixture(scope="session")
def order_of() -> Callable[..., SampleOrder]:
    return order_over


@pytest.fixture(scope="session")
def pairs() -> Callable[[Samples], list[tuple[int, int]]]:
    return lambda samples: list(zip(samples.source.tolist(), samples.row.tolist(), strict=True))
