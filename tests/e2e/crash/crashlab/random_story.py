"""A story that chance writes: several lives of a job, each with another crash, world size and batch spec."""

import random
from pathlib import Path

from crashlab.job import LifeEnd
from crashlab.rank import Life
from crashlab.scenarios import ROWS, expect_whole, job
from crashlab.trigger import Crash, Point, Victim
from dataserver.run_spec import BatchSpec, PackingPolicy

MOST_CRASHES = 4
EPOCHS = 2
LONGEST_ROW = 16


def random_story(directory: Path, *, seed: int) -> list[str]:
    """Some lives that crash at random points, and one that does not: every sample came once an epoch."""
    chance = random.Random(seed)
    told = [f"seed {seed}"]
    with job(
        directory, rows=chance.randint(40, ROWS), batch=any_batch(chance), servers=chance.randint(1, 2)
    ) as running:
        for number in range(chance.randint(1, MOST_CRASHES)):
            latest = running.place.checkpoints.latest()
            base = latest.cursor.step if latest else 0
            crash = any_crash(chance, base)
            running.arm(crash)
            running.restart_servers()  # so that they know of the crash
            life = any_life(chance, f"life-{number}", crash, resumes=latest is not None)
            end = running.live(life)
            told.append(f"{crash}, {life}: {end}")
            if complaint := surprise(crash, end):
                return [complaint, *told]
        running.arm(None)
        running.restart_servers()  # or a crash that found no chance yet comes now
        last = Life(world_size=chance.randint(1, 4), holder="last")
        end = running.live(last)
        complaints = expect_whole("the last life", end) + running.audit()
        return [*complaints, *told] if complaints else []


def any_batch(chance: random.Random) -> BatchSpec:
    """Any batch spec that a longest row fits."""
    most = {"step_tokens": 90, "step_samples": 9, "step_rounds": 3}
    budget = chance.choice(list(most))
    least = LONGEST_ROW if budget == "step_tokens" else 1
    return BatchSpec.model_validate(
        {
            budget: chance.randint(least, most[budget]),
            "micro_batch_tokens": 8 * chance.randint(LONGEST_ROW // 8, 8),
            "policy": chance.choice(list(PackingPolicy)),
            "alignment": chance.choice((1, 1, 4, 8)),
            "pad_to": chance.choice((0, 0, 8, "capacity")),
            "lookahead_steps": chance.choice((1, 1, 2, 3, 5)) if budget != "step_rounds" else 1,
            "max_epochs": EPOCHS,
            "cost_quadratic": chance.choice((0, 1)),
        }
    )


def any_crash(chance: random.Random, base: int) -> Crash:
    """Any point, of a step soon after `base`."""
    point = chance.choice(list(Point))
    if point in {Point.BEGIN_NOT_WRITTEN, Point.BEGIN_NOT_ANSWERED}:
        step = base
    elif point in {Point.OPEN_NOT_WRITTEN, Point.OPEN_NOT_ANSWERED}:
        step = base + 1
    else:
        step = base + chance.randint(1, 6)
    return Crash(point=point, step=step, victim=chance.choice(list(Victim)))


def any_life(chance: random.Random, holder: str, crash: Crash, *, resumes: bool) -> Life:
    """Any life that gets as far as the crash, and not much farther, with saves so dense that most crashes meet one."""
    siblings = chance.choice((1, 1, 1, 2))
    return Life(
        world_size=siblings * chance.randint(1, 4 // siblings),
        siblings=siblings,
        holder=holder,
        batch=any_batch(chance) if chance.random() < 0.3 else None,
        stop_after=crash.step + chance.randint(1, 3),
        save_every=chance.choice((1, 1, 2, 3)),
        by_version=resumes and chance.random() < 0.2,
    )


def surprise(crash: Crash, end: LifeEnd) -> str:
    """A complaint when ranks failed though nobody killed them."""
    killed = end.fired and crash.victim is not Victim.SERVER
    return "" if killed or end.unharmed else "ranks failed though nobody killed them"
