"""What happens to a job with evals: one function each, that gives back its complaints."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from orchestrator.testing.faults import Fault
from synclab.calls import Mischief
from synclab.cell import Cell
from synclab.moments import Kill
from synclab.programs import TOKEN_S
from synclab.rank import Pace
from synclab.verdict import complaints_about
from synclab.versions import TENSORS

PATIENT = 10.0
"""For stories in which nothing happens that excuses an eval that failed: no deadline passes on a busy machine."""

Scenario = Callable[..., list[str]]
SCENARIOS: dict[str, Scenario] = {}


def scenario(function: Scenario) -> Scenario:
    SCENARIOS[function.__name__] = function
    return function


@contextmanager
def cell(
    directory: Path,
    *,
    kills: list[Kill] | None = None,
    faults: Mapping[int, tuple[Fault, ...]] | None = None,
    engines: int = 2,
    orchestrator: bool = True,
    token_s: float = TOKEN_S,
    patience: float = 1.0,
    servers: int = 1,
) -> Iterator[Cell]:
    """A server, engines and an orchestrator that run."""
    made = Cell(directory, kills=kills, patience=patience)
    try:
        for number in range(servers):
            made.serve(number)
        for number in range(engines):
            made.engage(number, faults=(faults or {}).get(number, ()), token_s=token_s)
        if orchestrator:
            made.orchestrate()
        yield made
    finally:
        made.close()


@scenario
def undisturbed(directory: Path) -> list[str]:
    """Nothing goes wrong."""
    with cell(directory, patience=PATIENT) as running:
        running.train()
        return complaints_about(running, spared=True)


@scenario
def killed(directory: Path, *, victim: str, moment: str) -> list[str]:
    """Somebody is killed at a moment of a handover; engines are slow then, so that a call is under way."""
    slow = {"in_prepare": "announce", "in_commit": "finish"}.get(moment)
    faults = {0: (Fault(call=slow, action="slow", seconds=0.5, count=20),)} if slow else {}
    with cell(directory, kills=[Kill(victim=victim, moment=moment, version=4)], faults=faults) as running:
        running.train()
        fired = [] if running.has_fired(0) else ["the moment was never reached"]
        return fired + expect_killed(running, victim) + complaints_about(running)


@scenario
def engine_fails(directory: Path, *, call: str, action: str, after: bool = False) -> list[str]:
    """One engine fails in a call of a transfer, once; the other is well."""
    after_tensors = 1 if call == "update" and action == "die" else 0
    fault = Fault(call=call, action=action, after=after, after_tensors=after_tensors, seconds=4.0)
    with cell(directory, faults={0: (fault,)}) as running:
        running.train()
        return complaints_about(running)


@scenario
def engine_holds_another_model(directory: Path, *, field: str) -> list[str]:
    """A shape or type that does not match: that engine gets no weights, the other one does."""
    wrong = {"shape": {"shape": (9,)}, "dtype": {"dtype": "bfloat16"}}[field]
    tensors = (*TENSORS[:1], dataclasses.replace(TENSORS[1], **wrong), *TENSORS[2:])
    with cell(directory, engines=1, patience=PATIENT) as running:
        running.engage(1, tensors=tensors)
        running.train()
        foreign = [e for e in running.engine_events(1) if e["kind"] in {"synced", "generated"}]
        return [f"the foreign engine took part: {foreign[:3]}"] * bool(foreign) + complaints_about(running, spared=True)


@scenario
def engine_joins_late(directory: Path) -> list[str]:
    """One engine is there from the beginning, the other comes while the run goes on, and is synced before it serves."""
    with cell(directory, engines=1, patience=PATIENT) as running:
        running.at_checkpoint(3, lambda: running.engage(1))
        running.train(pace=Pace(step_s=0.25))
        events = [event["kind"] for event in running.engine_events(1)]
        unsynced = "generated" in events and "synced" not in events[: events.index("generated")]
        return ["it served before it was synced"] * unsynced + complaints_about(running, spared=True)


@scenario
def engine_comes_back_with_old_weights(directory: Path) -> list[str]:
    """An engine is killed when it is synced and idle; what it answers before it is synced again counts for nothing."""
    with cell(directory, kills=[Kill(victim="engine-0", moment="committed", version=4)]) as running:
        running.train(pace=Pace(step_s=0.1))
        return expect_killed(running, "engine-0") + complaints_about(running)


@scenario
def engine_is_killed_while_asleep(directory: Path) -> list[str]:
    """Somebody puts engines to sleep while the run goes on: one is killed at once, the other when it is noticed."""
    with cell(directory) as running:

        def strike() -> None:
            for number in (0, 1):
                running.put_to_sleep(number)
            running.kill("engine-0")

        running.at_checkpoint(3, strike)
        running.train(pace=Pace(step_s=0.15))
        slept = [any(e["kind"] == "asleep" for e in running.engine_events(number)) for number in (0, 1)]
        awake = [] if all(slept) else [f"an engine never slept: {slept}"]
        killed = [*expect_killed(running, "engine-0"), *expect_killed(running, "engine-1")]
        return awake + killed + complaints_about(running)


@scenario
def two_orchestrators(directory: Path) -> list[str]:
    """The second waits until the first is gone, then takes over."""
    with cell(directory) as running:
        running.orchestrate(1)
        running.at(1.2, lambda: running.kill("orchestrator"))
        running.train(pace=Pace(step_s=0.15))
        return complaints_about(running)


@scenario
def no_orchestrator(directory: Path) -> list[str]:
    """Nobody evaluates: the trainer never notices."""
    with cell(directory, orchestrator=False) as running:
        running.train(pace=Pace(wanted_s=0))
        synced = [event for number in (0, 1) for event in running.engine_events(number)]
        return [f"engines were called: {synced}"] * bool(synced) + running.audit()


@scenario
def orchestrator_comes_late(directory: Path) -> list[str]:
    """It comes when half of the steps are done; the last version is evaluated all the same."""
    with cell(directory, orchestrator=False, patience=PATIENT) as running:
        running.at_checkpoint(6, running.orchestrate)
        running.train(pace=Pace(wanted_after=6))
        return complaints_about(running, spared=True)


@scenario
def server_killed_while_an_eval_holds(directory: Path) -> list[str]:
    """The data server comes back, and the hold goes on."""
    with cell(directory, kills=[Kill(victim="server", moment="step_done", version=5)], token_s=0.06) as running:
        running.train(pace=Pace(step_s=0.15))
        return expect_killed(running, "server") + complaints_about(running)


@scenario
def two_data_servers(directory: Path, *, victim: str) -> list[str]:
    """Ranks call one server and the orchestrator another, on one ledger; one of them is killed inside a handover."""
    kill = Kill(victim=victim, moment="prepared", version=4)
    with cell(directory, kills=[kill], servers=2, patience=PATIENT) as running:
        running.train()
        told = {name: (directory / f"{name}.log").read_text() for name in ("server", "server-1")}
        apart = [
            f"{name} was not asked for {what}"
            for name, what in (("server", "begins after step"), ("server-1", "a sync of version"))
            if what not in told[name]
        ]
        return apart + expect_killed(running, victim) + complaints_about(running)


@scenario
def rewound_while_an_eval_runs(directory: Path) -> list[str]:
    """A person moves the run back under trainer and eval: both go on from there."""
    with cell(directory, token_s=0.06) as running:
        running.at_checkpoint(3, running.rewind)
        running.train(pace=Pace(step_s=0.3))
        again = [] if running.lives > 1 else ["the trainer did not notice that the run was rewound"]
        return again + complaints_about(running)


@scenario
def two_trainers(directory: Path) -> list[str]:
    """Another trainer takes the run over while the first is handing over; the first is refused, and never served."""
    with cell(directory) as running:
        running.at_checkpoint(3, running.take_over)
        running.train(pace=Pace(step_s=0.3))
        return complaints_about(running)


@scenario
def calls_go_astray(directory: Path, *, kind: str) -> list[str]:
    """Every second call of the trainer is lost, or comes late, twice, or again when all is over."""
    with cell(directory) as running:
        running.train(pace=Pace(mischief=Mischief(seed=1, **{kind: 0.5})))
        return complaints_about(running)


def expect_killed(running: Cell, victim: str) -> list[str]:
    """Complaints unless the victim was killed, and the trainer died only if it was the victim."""
    complaints = [] if -9 in running.codes.get(victim, []) else [f"{victim} was not killed: {running.codes}"]
    if not victim.startswith("rank-") and running.lives != 1:
        complaints.append(f"the trainer had {running.lives} lives, though only {victim} was killed: {running.codes}")
    return complaints
