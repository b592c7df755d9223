"""A story that chance writes: kills, stops and faults at any time, and calls that go astray."""

import random
from pathlib import Path

from orchestrator.testing.faults import Fault
from synclab.calls import Mischief
from synclab.cell import Cell
from synclab.moments import Kill, Moment
from synclab.rank import Pace
from synclab.scenarios import cell
from synclab.verdict import complaints_about

VICTIMS = ("server", "orchestrator", "engine-0", "engine-1", "rank-0", "rank-1")
CALLS = ("pause", "resume", "abort", "announce", "start", "update", "finish", "reset", "tokenize", "generate", "status")
LAST_EVENT_S = 3.0


def random_story(directory: Path, *, seed: int) -> list[str]:
    """Some things go wrong, and then nothing more: in the end all holds."""
    chance = random.Random(seed)
    world_size = chance.choice((1, 2, 2, 3))
    kills = [any_kill(chance) for _ in range(chance.randint(0, 2))]
    told = [f"seed {seed}", f"{world_size} ranks", *map(str, kills)]
    with cell(directory, kills=kills, faults={number: any_faults(chance) for number in (0, 1)}) as running:
        for _ in range(chance.randint(1, 3)):
            told.append(arrange(running, chance))
        try:
            running.train(world_size=world_size, pace=any_pace(chance))
        except RuntimeError as error:
            return [str(error), *told]
        complaints = complaints_about(running)
        return [*complaints, *told] if complaints else []


def any_kill(chance: random.Random) -> Kill:
    """Anybody, at any moment of a handover or after any step."""
    return Kill(victim=chance.choice(VICTIMS), moment=chance.choice(list(Moment)), version=chance.randint(0, 12))


def any_faults(chance: random.Random) -> tuple[Fault, ...]:
    """What an engine does wrong in its first life."""
    return tuple(
        Fault(
            call=chance.choice(CALLS),
            action=chance.choice(("die", "http_500", "slow", "slow", "hang")),
            seconds=chance.uniform(0.05, 0.6),
            after=chance.random() < 0.5,
        )
        for _ in range(chance.choice((0, 0, 1, 2)))
    )


def any_pace(chance: random.Random) -> Pace:
    """How the trainer goes."""
    lost, doubled, delayed, repeated = (chance.choice((0.0, 0.0, 0.2, 0.5)) for _ in range(4))
    mischief = Mischief(seed=chance.randrange(2**32), lost=lost, doubled=doubled, delayed=delayed, repeated=repeated)
    return Pace(step_s=chance.choice((0.01, 0.03, 0.06)), mischief=mischief)


def arrange(running: Cell, chance: random.Random) -> str:
    """Something at some time; says what."""
    victim, seconds = chance.choice(VICTIMS), chance.uniform(0.0, LAST_EVENT_S)
    if chance.random() < 0.6:
        running.at(seconds, lambda: running.kill(victim))
        return f"kill {victim} after {seconds:.2f} s"
    for_s = chance.uniform(0.1, 2.0)
    running.at(seconds, lambda: running.freeze(victim, for_s))
    return f"freeze {victim} after {seconds:.2f} s for {for_s:.2f} s"
