"""The real planner over a handful of samples, and what it means to have consumed them exactly once."""

from collections import Counter
from functools import cache

import numpy as np

from dataserver.cursor import Cursor
from dataserver.ledger import RunStage
from dataserver.planning.fingerprint import order_fingerprint
from dataserver.planning.plan import EndOfRun, Plan, TextOnly
from dataserver.planning.planner import Planner
from dataserver.planning.stages import PlannedStage, Stage
from dataserver.run_spec import BatchSpec, OrderSpec, RunSpec, Shuffle, Source
from dataserver.sampling.order import Samples
from dataserver.sampling.union import plain_union

LENGTHS = (2, 3, 4, 2, 3, 4)
ORDER = OrderSpec(sources=(Source(store="chat"),), shuffle=Shuffle.SEQUENTIAL, max_length=4)
FINGERPRINT = order_fingerprint(ORDER, ["store"])
FOREIGN = order_fingerprint(ORDER.model_copy(update={"seed": 1}), ["store"])


class Table(TextOnly):
    """Lengths of the samples."""

    sizes = (len(LENGTHS),)

    def lengths(self, samples: Samples) -> np.ndarray:
        return np.array(LENGTHS, np.int64)[samples.row]

    def targets(self, samples: Samples) -> np.ndarray:
        return self.lengths(samples) - 1


# A later stage reads another store of as many samples, which count from here on.
LATER = OrderSpec(sources=(Source(store="maths"),), shuffle=Shuffle.SEQUENTIAL, max_length=4)
LATER_SAMPLES = 100


def later_stage(first_step: int) -> RunStage:
    """The stage by which a run is amended."""
    fingerprint = order_fingerprint(LATER, ["other store"], before=FINGERPRINT, first_step=first_step)
    return RunStage(
        stage=Stage(first_step=first_step, order=LATER), order_fingerprint=fingerprint, epoch_samples=len(LENGTHS)
    )


def stages_fingerprint(first_step: int) -> str:
    """Of all stages, where the later one begins at `first_step`; 0 for none."""
    return later_stage(first_step).order_fingerprint if first_step else FINGERPRINT


@cache
def _planner(first_step: int) -> Planner:
    order = plain_union(Table.sizes, ORDER.seed, ORDER.shuffle)
    stages = [PlannedStage(first_step=1, order=order, table=Table(), fingerprint=FINGERPRINT)]
    if first_step:
        fingerprint = stages_fingerprint(first_step)
        stages.append(PlannedStage(first_step=first_step, order=order, table=Table(), fingerprint=fingerprint))
    return Planner(stages)


def run_spec(steps: int, lookahead: int, step_samples: int = 2) -> RunSpec:
    """So many samples a step, or six tokens where steps are packed together."""
    budget = {"step_samples": step_samples} if lookahead == 1 else {"step_tokens": 6}
    batch = BatchSpec(micro_batch_tokens=8, max_steps=steps, max_epochs=1, lookahead_steps=lookahead, **budget)
    return RunSpec(order=ORDER, batch=batch)


@cache
def plan(cursor: Cursor, batch: BatchSpec, dp_world_size: int, first_step: int = 0) -> Plan | EndOfRun:
    """Plan by the first stage, and by the later one from `first_step` on, if that is known."""
    return _planner(first_step).plan(cursor, batch, dp_world_size)


def samples_of(planned: Plan, dp_rank: int) -> tuple[int, ...]:
    """The samples that a data-parallel rank gets; none where the plan knows no such rank."""
    if dp_rank >= planned.dp_world_size:
        return ()
    base = LATER_SAMPLES * planned.end.stage
    return tuple(sorted(base + int(planned.samples.row[i]) for ranks in planned.rounds for i in ranks[dp_rank]))


def fault_of(weights: tuple[int, ...], cursor: Cursor) -> str:
    """How `weights` break the promise that each sample is in them exactly once, up to `cursor`; or nothing."""
    twice = sorted(sample for sample, count in Counter(weights).items() if count > 1)
    if twice:
        return f"samples {twice} are in the weights twice"
    if cursor.window is not None:
        return ""
    begin = LATER_SAMPLES * cursor.stage
    upto = begin + (len(LENGTHS) if cursor.epoch else cursor.position)
    never = sorted(set(range(begin, upto)) - set(weights))
    beyond = sorted(sample for sample in set(weights) - set(range(upto)) if sample >= begin)
    if never:
        return f"samples {never} lie before the cursor and are in no weights"
    return f"samples {beyond} lie after the cursor and are in the weights" if beyond else ""
