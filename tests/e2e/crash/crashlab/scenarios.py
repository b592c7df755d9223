"""What happens to a job: one function each, that gives back its complaints."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from crashlab.contenders import contend, rewind
from crashlab.job import LEASE_S, Job, LifeEnd
from crashlab.rank import RUN, Life
from crashlab.samples import write_rows
from crashlab.trigger import Crash, Point, Victim
from dataserver.run_spec import BatchSpec

ROWS = 70
STEPS_PER_EPOCH = 7
BATCH = BatchSpec(step_samples=ROWS // STEPS_PER_EPOCH, micro_batch_tokens=16, max_epochs=2)

# Saves come after every third step: step 5 stands between two of them, step 6 has one.
SAVE_STEP = 6
OTHER_STEP = 5
SAVE_POINTS = frozenset({Point.INSIDE_CHECKPOINT, Point.BEFORE_COMMIT, Point.AFTER_COMMIT})

# When nothing killed the first life, it ends by itself, in the second epoch.
FIRST_STOP = 9

Scenario = Callable[..., list[str]]
SCENARIOS: dict[str, Scenario] = {}


def scenario(function: Scenario) -> Scenario:
    SCENARIOS[function.__name__] = function
    return function


@contextmanager
def job(
    directory: Path,
    *,
    crash: Crash | None = None,
    rows: int = ROWS,
    batch: BatchSpec = BATCH,
    servers: int = 1,
    lease_s: float = LEASE_S,
) -> Iterator[Job]:
    """A job whose servers run; `crash` is armed in them and in all ranks."""
    store = directory / "store"
    write_rows(store, rows)
    made = Job(directory, store, rows, batch, servers, lease_s)
    made.arm(crash)
    try:
        for index in range(servers):
            made.start_server(index)
        yield made
    finally:
        made.close()


def expect_whole(name: str, end: LifeEnd) -> list[str]:
    """Complaints unless all ranks of a life ended well."""
    return [] if end.unharmed else [f"{name}: exit codes {end.exit_codes}, errors {end.errors}"]


def expect_crash(end: LifeEnd, victim: Victim) -> list[str]:
    """Complaints unless the crash came, and ended the ranks exactly when it hit one."""
    complaints = [] if end.fired else ["the crash point was never reached"]
    if victim is Victim.SERVER:
        return complaints + expect_whole("a crash of the server alone", end)
    if end.unharmed:
        complaints.append("ranks were killed and yet the job ended well")
    return complaints


@scenario
def crash_and_resume(directory: Path, *, point: str, victim: str, before: int, after: int) -> list[str]:
    """One cell of the matrix: a crash under `before` ranks, then a resume under `after`."""
    step = SAVE_STEP if point in SAVE_POINTS else OTHER_STEP
    crash = Crash(point=Point(point), step=step, victim=Victim(victim), rank=(after - 1) % before)
    with job(directory, crash=crash) as running:
        first = running.live(Life(world_size=before, holder="first", stop_after=FIRST_STOP))
        second = running.live(Life(world_size=after, holder="second"))
        return expect_crash(first, crash.victim) + expect_whole("the resumed life", second) + running.audit()


@scenario
def resume_twice(directory: Path) -> list[str]:
    """Crash, resume, save, crash, resume: with 2, 3 and 1 ranks."""
    with job(directory) as running:
        running.arm(Crash(point=Point.AFTER_OPTIMIZER_STEP, step=5, victim=Victim.ALL_RANKS))
        first = running.live(Life(world_size=2, holder="first"))
        running.arm(Crash(point=Point.MID_STREAM, step=11, victim=Victim.ALL_RANKS))
        second = running.live(Life(world_size=3, holder="second"))
        running.arm(None)
        third = running.live(Life(world_size=1, holder="third"))
        complaints = expect_crash(first, Victim.ALL_RANKS) + expect_crash(second, Victim.ALL_RANKS)
        return complaints + expect_whole("the third life", third) + running.audit()


@scenario
def save_at_epoch_end(directory: Path) -> list[str]:
    """Save exactly where an epoch ends, go on from there with other ranks: the next epoch is whole."""
    with job(directory) as running:
        first = running.live(Life(world_size=2, holder="first", stop_after=STEPS_PER_EPOCH))
        second = running.live(Life(world_size=3, holder="second"))
        complaints = expect_whole("the first life", first) + expect_whole("the second life", second)
        return complaints + running.audit()


@scenario
def resumed_and_uninterrupted(directory: Path) -> list[str]:
    """A job that was stopped inside an epoch consumes, step by step, what an undisturbed one does."""
    consumed = []
    for name, lives in (("undisturbed", [(2, None)]), ("resumed", [(2, 4), (2, None)])):
        home = directory / name
        home.mkdir()
        with job(home) as running:
            for number, (ranks, stop_after) in enumerate(lives):
                end = running.live(Life(world_size=ranks, holder=f"life-{number}", stop_after=stop_after))
                if complaints := expect_whole(f"{name}, life {number}", end) + ([] if stop_after else running.audit()):
                    return complaints
            consumed.append(sorted(running.place.checkpoints.load(2 * STEPS_PER_EPOCH).consumed))
    epochs = [[row for step, row in consumed[1] if (step > STEPS_PER_EPOCH) is later] for later in (False, True)]
    complaints = [] if consumed[0] == consumed[1] else ["a resume changed what the steps hold"]
    return complaints + (["both epochs came in one order"] if epochs[0] == epochs[1] else [])


@scenario
def resume_by_version(directory: Path) -> list[str]:
    """Resume by the run's name and an older version, without a cursor: what came after is dropped and made anew."""
    with job(directory) as running:
        first = running.live(Life(world_size=2, holder="first", stop_after=FIRST_STOP))
        second = running.live(Life(world_size=3, holder="second", resume_from=SAVE_STEP, by_version=True))
        complaints = expect_whole("the first life", first) + expect_whole("the second life", second)
        return complaints + running.audit()


@scenario
def batch_size_changes(directory: Path) -> list[str]:
    """Resume with half the samples a step and another capacity."""
    halved = BatchSpec(step_samples=BATCH.step_samples // 2, micro_batch_tokens=32, max_epochs=2)
    with job(directory, crash=Crash(point=Point.MID_STREAM, step=OTHER_STEP, victim=Victim.BOTH)) as running:
        first = running.live(Life(world_size=2, holder="first"))
        second = running.live(Life(world_size=3, holder="second", batch=halved))
        return expect_crash(first, Victim.BOTH) + expect_whole("the second life", second) + running.audit()


@scenario
def window_crash(directory: Path, *, before: int, after: int) -> list[str]:
    """Crash inside a lookahead window, resume inside it from a checkpoint with another world size."""
    batch = BATCH.model_copy(update={"lookahead_steps": 4})
    crash = Crash(point=Point.AFTER_OPTIMIZER_STEP, step=7, victim=Victim.ALL_RANKS)
    with job(directory, batch=batch, crash=crash) as running:
        first = running.live(Life(world_size=before, holder="first"))
        resumed = running.place.checkpoints.latest()
        complaints = [] if resumed.cursor.window else ["the checkpoint does not stand inside a window"]
        second = running.live(Life(world_size=after, holder="second"))
        complaints += expect_crash(first, Victim.ALL_RANKS) + expect_whole("the second life", second)
        return complaints + running.audit()


@scenario
def siblings_crash(directory: Path, *, point: str, victim: str) -> list[str]:
    """Two pairs of ranks that get equal micro-batches; after the crash three that do."""
    crash = Crash(point=Point(point), step=OTHER_STEP, victim=Victim(victim), rank=3)
    with job(directory, crash=crash) as running:
        first = running.live(Life(world_size=4, siblings=2, holder="first", stop_after=FIRST_STOP))
        second = running.live(Life(world_size=3, siblings=3, holder="second"))
        return expect_crash(first, crash.victim) + expect_whole("the second life", second) + running.audit()


@scenario
def crash_around_the_ledger(directory: Path, *, point: str, step: int, victim: str) -> list[str]:
    """The server dies before or after one of the ledger's transactions, with or without the ranks, who then resume."""
    crash = Crash(point=Point(point), step=step, victim=Victim(victim))
    with job(directory, crash=crash) as running:
        first = running.live(Life(world_size=2, holder="first"))
        second = running.live(Life(world_size=1, holder="second"))
        complaints = [] if first.fired else ["the crash point was never reached"]
        if crash.victim is Victim.SERVER:
            complaints += expect_whole("a crash of the server alone", first)
        return complaints + expect_whole("the second life", second) + running.audit()


@scenario
def ledger_restored(directory: Path) -> list[str]:
    """The ledger's database comes back from an older copy: the checkpoint's cursor wins and is adopted."""
    with job(directory) as running:
        complaints = expect_whole("the first life", running.live(Life(world_size=2, holder="first", stop_after=4)))
        running.stop_server()
        backup = directory / "backup"
        backup.mkdir()
        files = list(directory.glob(f"{running.ledger_path.name}*"))
        for file in files:
            shutil.copy(file, backup)
        running.start_server()
        complaints += expect_whole("the second life", running.live(Life(world_size=2, holder="second", stop_after=9)))
        running.stop_server()
        for file in directory.glob(f"{running.ledger_path.name}*"):
            file.unlink()
        for file in backup.iterdir():
            shutil.copy(file, directory)
        running.start_server()
        complaints += expect_whole("the third life", running.live(Life(world_size=3, holder="third")))
        kinds = running.ask(lambda client: [event.kind for event in client.list_run_events(RUN)])
        if "cursor_adopted" not in kinds:
            complaints.append(f"the ledger does not say that it adopted a cursor: {kinds}")
        # What lies before a base that the ledger did not know is not proven to lead there, and is forgotten.
        return complaints + running.audit(forgotten=range(1, 10))


@scenario
def replica_killed(directory: Path, *, point: str) -> list[str]:
    """Of two servers on one ledger, the one that half of the ranks talk to dies and stays dead."""
    crash = Crash(point=Point(point), step=OTHER_STEP, victim=Victim.SERVER)
    with job(directory, crash=crash, servers=2) as running:
        end = running.live(Life(world_size=4, holder="only"), restart_servers=False)
        return expect_crash(end, Victim.SERVER) + running.audit()


@scenario
def run_is_prolonged(directory: Path) -> list[str]:
    """A run that ended after one epoch goes on for another with other ranks."""
    with job(directory, batch=BATCH.model_copy(update={"max_epochs": 1})) as running:
        first = running.live(Life(world_size=2, holder="first"))
        complaints = expect_whole("the first life", first) + running.audit()
        second = running.live(Life(world_size=3, holder="second", batch=BATCH))
        return complaints + expect_whole("the second life", second) + running.audit()


@scenario
def run_is_rewound(directory: Path) -> list[str]:
    """A person moves the run back while a trainer is at work."""
    with job(directory) as running:
        return running.ask(lambda client: rewind(client, running.place.spec))


@scenario
def two_trainers(directory: Path) -> list[str]:
    """A second trainer under the run's name: refused; then it takes over, and the first can never come back.

    The lease of the first lasts however seldom a busy machine lets the server renew it.
    """
    with job(directory, lease_s=60.0) as running:
        return running.ask(lambda client: contend(client, running.place.spec))
