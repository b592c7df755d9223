"""What an orchestrator tells Prometheus."""

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from dataserver.weight_sync import PolicyVersion, SyncOutcome, WeightSync
from orchestrator.members import MemberState
from orchestrator.pool import Pool

# A tiny model moves in a tenth of a second, a large one in minutes.
SECONDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 180.0, 600.0)


class Metrics:
    """All metrics, registered with `registry`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.requests = Counter(
            "orchestrator_requests",
            "Calls that ended, by method and gRPC status.",
            ["method", "status"],
            registry=registry,
        )
        self.epoch = Gauge("orchestrator_epoch", "Epoch of the lease; 0 without one.", registry=registry)
        self.holding = Gauge("orchestrator_holding", "Whether evals want every step's weights.", registry=registry)
        self._engines = Gauge(
            "orchestrator_engines",
            "Engines, by state; `stale` are those of the ready ones that wait to be synced.",
            ["state"],
            registry=registry,
        )
        self._loans = Gauge("orchestrator_engine_loans", "Uses of an engine now.", ["engine"], registry=registry)
        self._version = Gauge("orchestrator_served_version", "The newest version that landed.", registry=registry)
        self._syncs = Counter("orchestrator_syncs", "Transfers that ended, by outcome.", ["outcome"], registry=registry)
        self._seconds = Histogram(
            "orchestrator_sync_seconds",
            "Seconds from the prepare until the last engine served the version.",
            buckets=SECONDS,
            registry=registry,
        )

        self._figures = Gauge(
            "orchestrator_eval_figure",
            "A figure of an eval's newest result: `mean`, `pass@1`, `truncated`, …; `version` is what it measured.",
            ["eval", "figure"],
            registry=registry,
        )
        self._evals = Counter("orchestrator_evals", "Evals that ended, by state.", ["eval", "state"], registry=registry)

    def write(self, step: int, line: Mapping[str, object], scalars: Mapping[str, float]) -> None:
        """Note an eval that ended; as a sink."""
        name = str(line["name"])
        self._evals.labels(name, str(line["state"])).inc()
        self._figures.labels(name, "version").set(step)
        for figure, value in scalars.items():
            self._figures.labels(name, figure.removeprefix(f"eval/{name}/")).set(value)

    def close(self) -> None:
        """Nothing to let go of."""

    def count_sync(self, sync: WeightSync) -> None:
        """Note a transfer that ended."""
        self._syncs.labels(sync.outcome.value).inc()
        if sync.outcome is SyncOutcome.LANDED:
            self._seconds.observe(sync.seconds)

    def show(self, pool: Pool) -> None:
        """Note how the engines stand."""
        states = [member.state for member in pool.members]
        for state in MemberState:
            self._engines.labels(state.value).set(states.count(state))
        self._engines.labels("stale").set(len(pool.stale()))
        for member in pool.members:
            self._loans.labels(member.name).set(member.loans)
        newest: PolicyVersion | None = pool.newest
        self._version.set(-1 if newest is None else newest.number)
