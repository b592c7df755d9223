"""A run as the orchestrator's core sees it: the state that it watches, versions that land, an eval director."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from dataserver.sinks import Sink
from dataserver.weight_sync import PolicyVersion, SyncState
from evallab.engines import ScriptedEngine
from orchestrator.evals.config import EvalConfig
from orchestrator.evals.director import EvalDirector
from orchestrator.evals.history import RunHistory
from orchestrator.evals.loading import load_questions
from orchestrator.labels import label_of
from orchestrator.pool import Pool
from orchestrator.results import ResultsTable, open_results
from orchestrator.wants import Wants

LIMIT_S = 60.0


def version(number: int, attempt: int = 1) -> PolicyVersion:
    return PolicyVersion(attempt=attempt, number=number)


def eval_config(prompts: Path, name: str = "reverse", interval: int = 5, **fields: object) -> EvalConfig:
    plain = {"name": name, "interval": interval, "prompts": {"file": str(prompts)}, "sampling": {"max_tokens": 16}}
    return EvalConfig.model_validate(plain | fields)


def write_prompts(path: Path, count: int) -> Path:
    words = [f"word-{number}" for number in range(count)]
    path.write_text("".join(f'{{"prompt": "{word}", "reference": "{word[::-1]}"}}\n' for word in words))
    return path


def give(pool: Pool, engine: ScriptedEngine, number: int, landed: PolicyVersion) -> None:
    """A sync brings `landed` to the engine, which is the pool's `number`-th."""
    sync_id = f"{landed.attempt:016x}{landed.number:016x}"
    engine.label = label_of(landed, sync_id)
    pool.land(pool.members[number], landed, sync_id, attempt=landed.attempt)


@dataclass(kw_only=True)
class Run:
    """`pool` of `engines`; `state` is what the data server would say."""

    engines: list[ScriptedEngine]
    pool: Pool
    results: ResultsTable
    configs: Sequence[EvalConfig]
    sinks: Sequence[Sink] = ()
    uid: str = "u" * 32
    bases: list[tuple[int, int]] = field(default_factory=lambda: [(1, 0)])
    state: SyncState = field(
        default_factory=lambda: SyncState(
            run="chat",
            attempt=1,
            sealed_step=0,
            consumed_step=0,
            requested=(),
            last_requested=False,
            last_sealed=False,
            ended=False,
            shutdown_deadline=None,
            holds=(),
            lease=None,
            landed=None,
            syncs=(),
            max_steps=None,
        )
    )
    wanted: Wants = field(default_factory=Wants)
    _turned: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.pool.note(self.state)
        self.director = self.new_director()

    def new_director(self) -> EvalDirector:
        """Another orchestrator, as after a restart."""

        async def history() -> RunHistory:
            return RunHistory(uid=self.uid, bases=tuple(self.bases))

        self.director = EvalDirector(
            run="chat",
            evals=[(config, load_questions(config)) for config in self.configs],
            pool=self.pool,
            results=self.results,
            history=history,
            changed=lambda: asyncio.get_running_loop().call_soon(self.look) and None,
            sinks=self.sinks,
        )
        return self.director

    def look(self) -> Wants:
        """Ask what is wanted, as the core does after every change."""
        self.wanted = self.director.wants(self.state)
        self._turned.set()
        return self.wanted

    def note(self, **fields: object) -> None:
        """The data server's state changed."""
        self.state = replace(self.state, **fields)
        self.pool.note(self.state)
        self.look()

    def land(self, landed: PolicyVersion, *engines: int) -> None:
        """`landed` arrives on engines that nobody pinned, or on those named."""
        free = [number for number, member in enumerate(self.pool.members) if not member.pins]
        for number in engines or free:
            give(self.pool, self.engines[number], number, landed)
        self.note(landed=landed)

    def step(self, number: int, **fields: object) -> None:
        """Step `number` was sealed and consumed."""
        self.note(sealed_step=number, consumed_step=number, **fields)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something is so; it is looked at after every change."""
        async with asyncio.timeout(LIMIT_S):
            while not condition():
                self._turned.clear()
                await self._turned.wait()

    @property
    def measured(self) -> list[str]:
        """What stands in the table, in the order of writing."""
        return [f"{each.name}@{each.version}" for each in self.results.of_run(self.uid)]


@contextmanager
def a_run(
    folder: Path, configs: Sequence[EvalConfig], *, engines: int = 1, sinks: Sequence[Sink] = ()
) -> Iterator[Run]:
    scripted = [ScriptedEngine(f"engine-{number}") for number in range(engines)]
    pool = Pool(scripted)  # type: ignore[arg-type]
    for member in pool.members:
        pool.see(member, None, workers=1)
    results = open_results(f"sqlite:///{folder}/evals.db")
    try:
        yield Run(engines=scripted, pool=pool, results=results, configs=configs, sinks=sinks)
    finally:
        results.close()
