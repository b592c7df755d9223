"""What the offline commands on lengths share: the lengths, how steps are cut from them, and the packing of each."""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dataserver.cli.numbers import MAX_RANKS, whole_number
from dataserver.cli.plan_cost import add_cost_arguments, cost_from
from dataserver.errors import InvalidConfigError, InvalidSpecError
from dataserver.run_spec import BatchSpec, PackingPolicy, Shuffle

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from dataserver.packing.cost import CostModel
    from dataserver.packing.figures import PackingBounds, PackingFigures
    from dataserver.planning.plan import Plan
    from dataserver.sampling.order import Samples


def add_packing_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the lengths and all that decides how they are cut and packed, except for the policy."""
    parser.add_argument(
        "--lengths", type=Path, required=True, metavar="FILE", help="lengths in tokens, as text, .npy, or a JSON list"
    )
    parser.add_argument(
        "--world-size", type=whole_number(1, MAX_RANKS), required=True, metavar="R", help="data-parallel ranks"
    )
    parser.add_argument("--capacity", type=int, required=True, metavar="C", help="tokens of a micro-batch")
    budget = parser.add_mutually_exclusive_group()
    budget.add_argument("--step-tokens", type=int, metavar="T", help="tokens of a step (default: all in one step)")
    budget.add_argument("--step-samples", type=int, metavar="S", help="samples of a step")
    budget.add_argument("--step-rounds", type=int, metavar="K", help="rounds of a step")
    parser.add_argument("--lookahead", type=int, default=1, metavar="W", help="steps packed together (default: 1)")
    parser.add_argument("--align", type=int, default=1, metavar="A", help="multiple that footprints are rounded up to")
    add_cost_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedStep:
    """One step: its plan, whose samples are numbered as in the file, its figures and what bounds them."""

    plan: "Plan"
    figures: "PackingFigures"
    bounds: "PackingBounds"


class ListedLengths:
    """A table of samples that are one source with the given lengths, int64[n]; all tokens but the first are targets."""

    def __init__(self, lengths: "NDArray[np.int64]") -> None:
        self.sizes = (len(lengths),)
        self._lengths = lengths

    def lengths(self, samples: "Samples") -> "NDArray[np.int64]":
        """Tokens of each sample, int64[n]."""
        return self._lengths[samples.row]

    def targets(self, samples: "Samples") -> "NDArray[np.int64]":
        """Targets of each sample, int64[n]."""
        return self._lengths[samples.row] - 1

    def weights(self, samples: "Samples") -> None:
        """None: every target weighs 1."""

    def has_images(self, samples: "Samples") -> None:
        """None: no sample has images."""


def read_lengths(path: Path) -> "NDArray[np.int64]":
    """The lengths in a file; raises `InvalidConfigError` for a file or a length that cannot be meant."""
    import numpy as np

    try:
        if path.suffix == ".npy":
            with path.open("rb") as file:
                values = np.lib.format.read_array(file, allow_pickle=False)
        else:
            text = path.read_text().replace(",", " ").strip().removeprefix("[").removesuffix("]")
            values = np.array(text.split(), dtype=np.int64)
    except OSError as error:
        raise InvalidConfigError(f"cannot read the lengths in {path}: {error.strerror}") from error
    except ValueError as error:
        raise InvalidConfigError(f"{path} does not hold lengths, whole numbers and nothing else: {error}") from error
    if values.ndim != 1 or not len(values) or values.dtype.kind not in "iu" or values.min() < 1:
        raise InvalidConfigError(f"{path}: a list of whole numbers from 1 on is needed, at least one of them")
    lengths: NDArray[np.int64] = values.astype(np.int64)
    return lengths


def batch_spec(arguments: argparse.Namespace, policy: PackingPolicy, cost: "CostModel", tokens: int) -> BatchSpec:
    """The batch spec that the arguments describe; raises `InvalidSpecError` for one that is none."""
    from pydantic import ValidationError

    from dataserver.wire.messages import spec_error

    budgets = (arguments.step_tokens, arguments.step_samples, arguments.step_rounds)
    try:
        return BatchSpec(
            step_tokens=tokens if budgets == (None, None, None) else arguments.step_tokens,
            step_samples=arguments.step_samples,
            step_rounds=arguments.step_rounds,
            micro_batch_tokens=arguments.capacity,
            policy=policy,
            alignment=arguments.align,
            lookahead_steps=arguments.lookahead,
            max_epochs=1,
            cost_linear=cost.linear,
            cost_quadratic=cost.quadratic,
        )
    except ValidationError as error:
        raise spec_error(error) from error


def packed_steps(lengths: "NDArray[np.int64]", batch: BatchSpec, dp_world_size: int) -> Iterator[PackedStep]:
    """All steps of one pass over `lengths` (int64[n]), in the order of the file."""
    from dataserver.packing.cost import CostModel
    from dataserver.packing.figures import packing_bounds
    from dataserver.planning.plan import EndOfRun
    from dataserver.planning.planner import Planner
    from dataserver.sampling.union import plain_union

    if batch.step_tokens is not None and batch.step_tokens < lengths.max():
        raise InvalidSpecError(
            f"a sample of {int(lengths.max())} tokens exceeds step_tokens = {batch.step_tokens}: raise it"
        )
    cost = CostModel(batch.cost_linear, batch.cost_quadratic)
    order = plain_union((len(lengths),), seed=0, shuffle=Shuffle.SEQUENTIAL)
    planner = Planner.of_order(order, ListedLengths(lengths), "lengths")
    cursor = planner.initial_cursor()
    while not isinstance(plan := planner.plan(cursor, batch, dp_world_size), EndOfRun):
        bounds = packing_bounds(plan.lengths, plan.rounds, capacity=batch.micro_batch_tokens, cost=cost)
        yield PackedStep(plan=plan, figures=plan.figures, bounds=bounds)
        cursor = plan.end


def cost_of_arguments(arguments: argparse.Namespace) -> "CostModel":
    """The cost of the arguments; says on standard error when every token counts the same."""
    import sys

    if arguments.model is None and arguments.cost is None:
        print("dataserver: no --model and no --cost: every token costs the same, attention nothing", file=sys.stderr)
    return cost_from(arguments)
