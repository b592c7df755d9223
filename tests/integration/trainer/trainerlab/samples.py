"""Samples, micro-batches and steps made in memory, packed as a test likes."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dataserver.cursor import Cursor
from dataserver.weight_sync import OrchestratorAddress
from dataserver.wire.micro_batch import MicroBatch, footprints

VOCABULARY = 96
FINGERPRINT = "f" * 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    tokens: np.ndarray
    mask: np.ndarray
    weights: np.ndarray | None = None

    @property
    def targets(self) -> int:
        return int(self.mask[1:].sum())

    @property
    def weight_sum(self) -> float:
        return float(self.targets if self.weights is None else self.weights[1:][self.mask[1:]].sum(dtype=np.float64))


def draw_samples(count: int, *, seed: int, longest: int = 24) -> list[Sample]:
    """Samples of 2 to `longest` tokens whose masks begin anywhere, at position 0 too."""
    random = np.random.default_rng(seed)
    samples = []
    for _ in range(count):
        length = int(random.integers(2, longest + 1))
        mask = np.arange(length) >= random.integers(0, length)
        samples.append(Sample(tokens=random.integers(1, VOCABULARY, length).astype(np.uint16), mask=mask))
    return samples


def micro_batch(samples: Sequence[Sample], *, step: int = 1, index: int = 0, alignment: int = 1) -> MicroBatch:
    lengths = np.array([len(sample.tokens) for sample in samples], dtype=np.int64)
    sizes = footprints(lengths, alignment)
    tokens = np.zeros(int(sizes.sum()), dtype=np.uint16)
    mask = np.zeros(len(tokens), dtype=bool)
    weights = np.zeros(len(tokens), dtype=np.float32) if any(s.weights is not None for s in samples) else None
    for sample, begin in zip(samples, np.cumsum(sizes) - sizes, strict=True):
        tokens[begin : begin + len(sample.tokens)] = sample.tokens
        mask[begin : begin + len(sample.tokens)] = sample.mask
        if weights is not None:
            weights[begin : begin + len(sample.tokens)] = sample.weights
    return MicroBatch(
        step=step,
        round=index,
        sync_weights=False,
        alignment=alignment,
        lengths=lengths,
        target_count=sum(sample.targets for sample in samples),
        tokens=tokens,
        loss_mask=mask,
        loss_weight=weights,
    )


@dataclass(slots=True, kw_only=True)
class MemoryStep:
    """One rank's part of a step."""

    number: int
    end: Cursor
    batches: Sequence[MicroBatch]
    target_count: int
    token_count: int
    sample_count: int
    weight_sum: float
    last: bool = False
    plan_digest: str = "plan"
    sync_weights: bool = False
    orchestrator: OrchestratorAddress | None = None
    wait_s: float = 0.0

    @property
    def rounds(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[MicroBatch]:
        return iter(self.batches)


def deal(
    samples: Sequence[Sample],
    *,
    ranks: int,
    rounds: int,
    seed: int,
    alignment: int = 1,
    number: int = 1,
    last: bool = False,
) -> list[MemoryStep]:
    """The step of each rank: samples thrown at random into `rounds` x `ranks` micro-batches, some left empty."""
    random = np.random.default_rng(seed)
    cells: list[list[list[Sample]]] = [[[] for _ in range(rounds)] for _ in range(ranks)]
    for index in random.permutation(len(samples)):
        cells[random.integers(ranks)][random.integers(rounds)].append(samples[index])
    return [
        MemoryStep(
            number=number,
            end=Cursor(order_fingerprint=FINGERPRINT, step=number, position=number),
            batches=[
                micro_batch(cell, step=number, index=index, alignment=alignment) for index, cell in enumerate(row)
            ],
            target_count=sum(sample.targets for sample in samples),
            token_count=sum(len(sample.tokens) for sample in samples),
            sample_count=len(samples),
            weight_sum=math.fsum(sample.weight_sum for sample in samples),
            last=last,
        )
        for row in cells
    ]
