"""What is due, against small models of a run: a trainer that seals and lands, an engine, evals that take their time."""

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataserver.weight_sync import PolicyVersion
from orchestrator.evals.config import EvalConfig
from orchestrator.evals.schedule import AHEAD, Agenda, Due, Measurement, Situation, agenda, survives


def eval_config(name: str = "reverse", interval: int = 5, **fields: object) -> EvalConfig:
    return EvalConfig.model_validate(
        {"name": name, "interval": interval, "prompts": {"file": "p.jsonl"}, "sampling": {"max_tokens": 8}} | fields
    )


@dataclass(kw_only=True)
class World:
    """A run of `steps` steps with one engine. Evals last as many steps as `lasts` says."""

    evals: list[EvalConfig]
    steps: int
    lasts: dict[str, int]
    attempt: int = 1
    bases: list[tuple[int, int]] = field(default_factory=lambda: [(1, 0)])
    head: int = 0
    consumed: int = 0
    served: PolicyVersion | None = None
    ended: bool = False
    seen: bool = True
    requested: set[int] = field(default_factory=set)
    last_wanted: bool = False
    held: bool = False
    running: dict[Measurement, int] = field(default_factory=dict)
    finished: list[Measurement] = field(default_factory=list)
    triggers: list[Due] = field(default_factory=list)
    syncs: list[PolicyVersion] = field(default_factory=list)
    missed: set[Due] = field(default_factory=set)

    def situation(self) -> Situation:
        return Situation(
            bases=self.bases,
            head=self.head,
            consumed=self.consumed,
            last_sealed=self.head == self.steps,
            ended=self.ended,
            max_steps=self.steps,
            served=self.served if self.seen else None,
            free=not self.pinned,
            moving=False,
            settled=self.seen,
            running=list(self.running),
            finished=self.finished,
            triggers=self.triggers,
        )

    @property
    def pinned(self) -> bool:
        pinning = {config.name for config in self.evals if config.pin}
        return any(each.name in pinning for each in self.running)

    @property
    def trained(self) -> PolicyVersion:
        return PolicyVersion(attempt=self.attempt, number=self.head)

    def orchestrate(self) -> Agenda:
        """Do what is due, as the orchestrator does, until nothing more is."""
        while True:
            now = agenda(self.evals, self.situation())
            self.requested |= now.requests
            self.last_wanted, self.held = now.last, now.hold
            for each in now.cancel:
                del self.running[each]
            for each in now.begin:
                assert each not in self.running
                assert each not in self.finished, f"{each} is measured twice"
                self.running[each] = self.lasts[each.name]
            for due in now.missed:
                self.missed.add(due)
                self.finished.append(Measurement(name=due.name, version=self.trained))
            ended = [each for each, left in self.running.items() if left <= 0]
            for each in ended:
                del self.running[each]
                self.finished.append(each)
            if not (now.cancel or now.begin or now.missed or ended):
                return now

    def offer(self, lands: bool = True) -> None:
        """What the trainer holds, outside a step: at the start, or at the end while it is wanted."""
        wanted = self.held or (self.head == self.steps and self.last_wanted) or self.head in self.requested
        self.sync(wanted, lands)

    def step(self, lands: bool = True) -> None:
        self.head += 1
        stamp = self.held or self.head in self.requested or (self.head == self.steps and self.last_wanted)
        self.orchestrate()
        for each in self.running:
            self.running[each] -= 1
        self.sync(stamp, lands)

    def sync(self, stamp: bool, lands: bool) -> None:
        version = self.trained
        if stamp and lands and not self.pinned and self.served != version:
            self.served = version
            self.requested.discard(self.head)
            self.syncs.append(version)
        self.consumed = self.head
        self.orchestrate()

    def rewind(self, base: int) -> None:
        self.attempt += 1
        self.bases.append((self.attempt, base))
        self.head = self.consumed = base
        self.ended = False
        self.orchestrate()

    def needs_no_weights(self) -> bool:
        """Whether the run may end: what is under way is all that is left."""
        met = [*self.finished, *self.running]
        return agenda(self.evals, replace(self.situation(), running=[], finished=met)).over

    def restart(self, seen: bool = True) -> None:
        """Another orchestrator: what was under way is forgotten, what is finished is not; engines are `seen` later."""
        self.running.clear()
        self.seen = seen
        self.orchestrate()

    def drain(self, restarts: int = 0) -> Agenda:
        """To the end of the run: offers are repeated until nothing is wanted any more. Then restarts, if any."""
        for _ in range(1000):
            if not self.ended:
                self.offer()
            now = self.orchestrate()
            self.ended = self.ended or self.needs_no_weights()
            if now.over and not restarts:
                return now
            if self.ended and restarts:
                restarts -= 1
                self.restart(seen=False)
                self.seen = True
            for each in self.running:
                self.running[each] -= 1
        raise AssertionError(f"the run does not end: {now}")

    def measured(self, name: str) -> list[int]:
        return [each.version.number for each in self.finished if each.name == name]


def play(world: World) -> World:
    world.orchestrate()
    world.offer()
    while world.head < world.steps:
        world.step()
    world.drain()
    return world


@pytest.mark.parametrize(
    ("lasts", "syncs", "measured"),
    [
        (0, [0, 5, 10], [0, 5, 10]),
        (1, [0, 1, 5, 6, 10], [0, 5, 10]),
        (3, [0, 1, 2, 3, 5, 6, 7, 8, 10], [0, 5, 10]),
        (5, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10], [0, 5, 10]),
        (7, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10], [0, 7, 10]),
    ],
)
def test_a_live_eval_every_five_of_ten_steps_syncs_while_it_lasts_and_no_more(lasts, syncs, measured):
    world = play(World(evals=[eval_config()], steps=10, lasts={"reverse": lasts}))
    assert [version.number for version in world.syncs] == syncs
    assert world.measured("reverse") == measured


@pytest.mark.parametrize("lasts", [0, 1, 4, 5, 6, 9, 11, 20])
@pytest.mark.parametrize(("steps", "interval"), [(10, 5), (11, 5), (7, 2), (3, 10)])
def test_syncs_of_a_live_eval_follow_the_rule(lasts, steps, interval):
    busy_until, measured, syncs = lasts, 0, {0}
    for step in range(1, steps + 1):
        due = step // interval * interval
        if step <= busy_until or step % interval == 0 or step == steps:
            syncs.add(step)
        if step >= busy_until and step in syncs and measured < due:
            busy_until, measured = step + lasts, step
    world = play(World(evals=[eval_config(interval=interval)], steps=steps, lasts={"reverse": lasts}))
    assert {version.number for version in world.syncs} == syncs
    assert world.measured("reverse")[-1] == steps


def test_a_pinned_eval_asks_for_its_versions_alone_and_a_missed_one_is_measured_at_the_next():
    world = play(World(evals=[eval_config(pin=True)], steps=20, lasts={"reverse": 3}))
    assert world.measured("reverse") == [0, 5, 10, 15, 20]
    assert [version.number for version in world.syncs] == [0, 5, 10, 15, 20]
    slow = play(World(evals=[eval_config(pin=True)], steps=20, lasts={"reverse": 7}))
    assert slow.measured("reverse") == [0, 8, 16, 20]


def test_a_pinned_eval_whose_version_is_sealed_and_not_missed_asks_for_no_other():
    world = World(evals=[eval_config(pin=True, eval_at_start=False)], steps=20, lasts={}, head=6, consumed=4)
    assert [agenda(world.evals, world.situation()).hold for world.consumed in (4, 5)] == [False, True]
    assert not agenda(world.evals, replace(world.situation(), moving=True)).hold
    world.evals = [eval_config(eval_at_start=False)]
    world.consumed = 4
    assert agenda(world.evals, world.situation()).hold


def test_the_last_version_is_measured_though_it_is_no_multiple_and_the_run_has_no_bound():
    now = agenda(
        [eval_config()],
        Situation(
            bases=[(1, 0)],
            head=7,
            consumed=7,
            last_sealed=True,
            ended=False,
            max_steps=None,
            served=PolicyVersion(attempt=1, number=5),
            free=True,
            moving=False,
            settled=True,
            running=[],
            finished=[Measurement(name="reverse", version=PolicyVersion(attempt=1, number=5))],
        ),
    )
    assert (now.last, now.hold, now.queued, now.over) == (True, True, (Due(name="reverse", number=7),), False)


def test_versions_are_requested_before_their_steps_are_sealed_and_never_beyond_the_end():
    world = World(evals=[eval_config(interval=1)], steps=3, lasts={"reverse": 0})
    assert agenda(world.evals, world.situation()).requests == {1, 2, 3}
    world.steps = 100
    assert agenda(world.evals, world.situation()).requests == set(range(1, AHEAD + 1))


def test_only_results_that_survive_a_rewind_count():
    world = World(evals=[eval_config()], steps=10, lasts={"reverse": 1})
    world.orchestrate()
    world.offer()
    for _ in range(8):
        world.step()
    assert world.measured("reverse") == [0, 5]
    world.rewind(3)
    while world.head < 10:
        world.step()
    world.drain()
    versions = [str(each.version) for each in world.finished]
    assert versions == ["1.0", "1.5", "2.5", "2.10"]


def test_an_eval_of_weights_that_a_rewind_dropped_is_cancelled_and_others_go_on():
    early, late = (PolicyVersion(attempt=1, number=number) for number in (3, 5))
    running = [Measurement(name="a", version=early), Measurement(name="b", version=late)]
    world = World(
        evals=[eval_config("a"), eval_config("b")], steps=10, lasts={}, head=4, consumed=4, bases=[(1, 0), (2, 4)]
    )
    world.running = dict.fromkeys(running, 1)
    assert agenda(world.evals, world.situation()).cancel == (running[1],)


def test_after_the_end_of_the_run_what_cannot_be_measured_is_missed_and_said():
    world = World(evals=[eval_config()], steps=4, lasts={"reverse": 1}, head=4, consumed=4, ended=True)
    now = world.orchestrate()
    assert world.missed == {Due(name="reverse", number=0)}
    assert (now.hold, now.last, now.over) == (False, False, True)


def test_after_the_end_of_the_run_nothing_is_missed_while_an_engine_may_have_its_version():
    world = World(evals=[eval_config()], steps=4, lasts={"reverse": 1}, head=4, consumed=4, ended=True, seen=False)
    now = world.orchestrate()
    assert (now.missed, now.queued, now.over) == ((), (Due(name="reverse", number=0),), False)
    world.seen, world.served = True, PolicyVersion(attempt=1, number=4)
    assert [each.version for each in world.orchestrate().begin or world.running] == [world.served]
    assert not world.missed


def test_the_hold_of_a_live_eval_does_not_pause_between_its_queue_and_its_first_answer():
    world = World(evals=[eval_config()], steps=10, lasts={}, served=PolicyVersion(attempt=1, number=0))
    now = agenda(world.evals, world.situation())
    assert (len(now.begin), now.hold) == (1, True)
    pinned = World(evals=[eval_config(pin=True)], steps=10, lasts={}, served=world.served)
    now = agenda(pinned.evals, pinned.situation())
    assert (len(now.begin), now.hold) == (1, False)


def test_nothing_is_held_for_while_every_engine_is_pinned():
    world = World(evals=[eval_config("a"), eval_config("b", pin=True)], steps=10, lasts={})
    assert agenda(world.evals, world.situation()).hold
    assert not agenda(world.evals, replace(world.situation(), free=False)).hold


def test_an_ended_run_is_asked_for_nothing_even_while_an_eval_runs():
    running = Measurement(name="reverse", version=PolicyVersion(attempt=1, number=3))
    world = World(evals=[eval_config()], steps=4, lasts={}, head=4, consumed=4)
    world.running = {running: 5}
    assert (agenda(world.evals, world.situation()).hold, agenda(world.evals, world.situation()).last) == (True, True)
    world.ended = True
    now = agenda(world.evals, world.situation())
    assert (now.hold, now.last, now.over) == (False, False, False)


def test_the_last_version_is_asked_for_until_its_eval_has_begun():
    world = World(evals=[eval_config()], steps=4, lasts={}, head=4, consumed=4)
    assert agenda(world.evals, world.situation()).last
    world.running = {Measurement(name="reverse", version=PolicyVersion(attempt=1, number=4)): 5}
    assert not agenda(world.evals, world.situation()).last


def test_without_eval_at_end_the_last_version_is_not_due():
    world = World(evals=[eval_config(eval_at_end=False)], steps=7, lasts={"reverse": 0})
    assert not agenda(world.evals, world.situation()).last
    assert play(world).measured("reverse") == [0, 5]


def test_a_triggered_version_is_due_like_any_other():
    world = World(evals=[eval_config(interval=100)], steps=10, lasts={"reverse": 0})
    world.triggers = [Due(name="reverse", number=4), Due(name="other", number=2)]
    assert play(world).measured("reverse") == [0, 4, 10]


def test_survival_is_judged_by_the_attempts_that_came_later():
    version = PolicyVersion(attempt=2, number=7)
    assert survives(version, [(1, 0), (2, 3), (3, 7), (4, 9)])
    assert not survives(version, [(3, 7), (4, 6), (5, 20)])


CONFIGS = st.lists(
    st.builds(
        dict,
        interval=st.integers(1, 6),
        pin=st.booleans(),
        eval_at_start=st.booleans(),
        eval_at_end=st.booleans(),
    ),
    min_size=1,
    max_size=3,
)
EVENTS = st.lists(
    st.sampled_from(["step", "step", "step", "miss", "restart", "rewind", "trigger", "absent"]), max_size=30
)


@settings(max_examples=300, deadline=None)
@given(configs=CONFIGS, steps=st.integers(1, 14), events=EVENTS, data=st.data())
def test_whatever_happens_every_due_is_met_once_and_the_run_ends(configs, steps, events, data):
    evals = [eval_config(f"eval-{number}", **fields) for number, fields in enumerate(configs)]
    lasts = {config.name: data.draw(st.integers(0, 6), config.name) for config in evals}
    world = World(evals=evals, steps=steps, lasts=lasts)
    world.orchestrate()
    world.offer(lands=data.draw(st.booleans()))
    for event in events:
        if event == "restart":
            world.restart()
        elif event == "rewind":
            world.rewind(data.draw(st.integers(0, world.head)))
            world.offer(lands=data.draw(st.booleans()))
        elif event == "trigger":
            world.triggers.append(Due(name=evals[0].name, number=data.draw(st.integers(0, world.steps))))
            world.orchestrate()
        elif event == "absent":  # no orchestrator: what was asked for stands, nobody acts
            world.head = world.consumed = min(world.head + 2, steps)
            world.held = False
        elif world.head < steps:
            world.step(lands=event == "step")
    while world.head < steps:
        world.step()
    world.drain(restarts=data.draw(st.integers(0, 3)))
    assert not world.missed
    for config in evals:
        surviving = [each.version for each in world.finished if each.name == config.name]
        surviving = [version for version in surviving if survives(version, world.bases)]
        assert len(set(surviving)) == len(surviving)
        numbers = {version.number for version in surviving}
        dues = set(range(config.interval, steps + 1, config.interval))
        dues |= ({0} if config.eval_at_start else set()) | ({steps} if config.eval_at_end else set())
        dues |= {due.number for due in world.triggers if due.name == config.name}
        assert all(any(number >= due for number in numbers) for due in dues), (config, numbers)
        assert not config.eval_at_end or steps in numbers
