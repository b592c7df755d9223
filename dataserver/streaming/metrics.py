"""What a server tells Prometheus. One object per server, so that two in one process do not mix."""

import math
import warnings
from collections.abc import Mapping
from dataclasses import asdict

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from dataserver.ledger.steps import Seal

# Planning takes milliseconds, a seal one disk flush; both may stall.
SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)


class Metrics:
    """All metrics, registered with `registry`. Gauges add up over the processes of one server."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self._streams(registry)
        self._work(registry)
        self._runs(registry)
        self._syncs(registry)
        self._stores(registry)

    def _streams(self, registry: CollectorRegistry) -> None:
        self.open_streams = Gauge(
            "dataserver_open_streams", "Streams that are open.", registry=registry, multiprocess_mode="livesum"
        )
        self.steps_sealed = Counter("dataserver_steps_sealed", "Steps sealed or read back.", registry=registry)
        self.micro_batches = Counter("dataserver_micro_batches_sent", "Micro-batches sent.", registry=registry)
        self.bytes = Counter("dataserver_bytes_sent", "Bytes of micro-batches sent.", registry=registry)
        self.tokens = Counter("dataserver_tokens_sent", "Tokens sent, without padding.", registry=registry)
        self.wait_seconds = Counter(
            "dataserver_wait_seconds", "Seconds that streams waited, by cause.", ["cause"], registry=registry
        )
        self.waiting = Gauge(
            "dataserver_waiting_streams",
            "Streams that wait now, by cause.",
            ["cause"],
            registry=registry,
            multiprocess_mode="livesum",
        )

    def _work(self, registry: CollectorRegistry) -> None:
        self.work_seconds = Histogram(
            "dataserver_work_seconds",
            "Seconds of blocking work, by kind: plan, encode, fetch, ledger, store, inspect.",
            ["kind"],
            buckets=SECONDS,
            registry=registry,
        )
        self.requests = Counter(
            "dataserver_requests",
            "Calls that ended, by method and gRPC status.",
            ["method", "status"],
            registry=registry,
        )

    def _runs(self, registry: CollectorRegistry) -> None:
        def latest(name: str, text: str, *labels: str) -> Gauge:
            """Of a run; where several processes tell of it, what was told last."""
            return Gauge(name, text, ("run", *labels), registry=registry, multiprocess_mode="mostrecent")

        self.packing = latest(
            "dataserver_packing", "How well the last sealed step of a run is packed, by figure.", "figure"
        )
        self.run_tokens = latest(
            "dataserver_run_tokens", "Tokens in the sealed steps of a run, without padding, by store.", "store"
        )
        self.token_share = latest("dataserver_run_token_share", "Part of these tokens that came from a store.", "store")
        self.target_token_share = latest(
            "dataserver_run_target_token_share",
            "Part of an epoch's tokens that comes from a store, in the stage of the last sealed step. NaN: not known.",
            "store",
        )
        self.sealed_step = latest("dataserver_sealed_step", "Last step sealed.")
        self.consumed_step = latest("dataserver_consumed_step", "Last step that every rank acknowledged.")

    def _syncs(self, registry: CollectorRegistry) -> None:
        self.sync_requests = Counter(
            "dataserver_sync_requests",
            "Requests for a version's weights, by run and answer: accepted, landed, already_sealed.",
            ["run", "outcome"],
            registry=registry,
        )
        self.sync_reports = Counter(
            "dataserver_sync_reports",
            "Reports of syncs, by run and outcome: landed, failed, skipped. Trainer and orchestrator both report.",
            ["run", "outcome"],
            registry=registry,
        )
        self.sync_stamps = Counter(
            "dataserver_sync_stamps",
            "Steps and offers sealed here, or read back, that ask for a sync, by run.",
            ["run"],
            registry=registry,
        )

    def _stores(self, registry: CollectorRegistry) -> None:
        self.store_ready = Gauge(
            "dataserver_store_ready",
            "1 where the rows of a store are served, 0 while it is rendered, or when that failed.",
            ["store"],
            registry=registry,
            multiprocess_mode="livemin",
        )
        self.rendered_rows = Gauge(
            "dataserver_store_rendered_rows",
            "Rows of conversations that are rendered, by store, since this server started.",
            ["store"],
            registry=registry,
            multiprocess_mode="max",
        )
        self.rendered_tokens = Gauge(
            "dataserver_store_rendered_tokens",
            "Tokens of them.",
            ["store"],
            registry=registry,
            multiprocess_mode="max",
        )
        self.render_left = Gauge(
            "dataserver_store_render_left_seconds",
            "Seconds until the stage of rendering is done in which a store is.",
            ["store"],
            registry=registry,
            multiprocess_mode="mostrecent",
        )
        self.store_rows = Gauge(
            "dataserver_store_rows", "Rows of a store.", ["store"], registry=registry, multiprocess_mode="max"
        )
        self.store_tokens = Gauge(
            "dataserver_store_tokens", "Tokens of a store.", ["store"], registry=registry, multiprocess_mode="max"
        )
        self.store_dropped = Gauge(
            "dataserver_store_dropped_rows",
            "Rows of a store that are never served whatever `max_length` is, by reason.",
            ["store", "reason"],
            registry=registry,
            multiprocess_mode="max",
        )

        self.disk_cache = Counter(
            "dataserver_disk_cache",
            "Reads through the disk cache: hits, misses, damaged entries, and those that had to go past it (uncached).",
            ["outcome"],
            registry=registry,
        )

    def count_disk_cache(self, outcome: str) -> None:
        """Note what came of a read through the disk cache."""
        self.disk_cache.labels(outcome).inc()

    def count_seal(self, run: str, seal: Seal, target_shares: Mapping[str, float]) -> None:
        """Note a step that was sealed, or read back; the end of a run is none.

        `target_shares`: the part of each store in an epoch of the step's stage; empty where that is not known.
        """
        if seal.totals is None:
            return
        self.steps_sealed.inc()
        if seal.sync_weights:
            self.sync_stamps.labels(run).inc()
        self.sealed_step.labels(run).set(seal.step)
        for figure, value in asdict(seal.totals.last).items():
            self.packing.labels(run, figure).set(value)
        served = seal.totals.store_tokens
        total, no_share = sum(served.values()), 0.0 if target_shares else math.nan
        for store in served.keys() | target_shares.keys():
            tokens = served.get(store, 0)
            self.run_tokens.labels(run, store).set(tokens)
            self.token_share.labels(run, store).set(tokens / total)
            self.target_token_share.labels(run, store).set(target_shares.get(store, no_share))

    def forget_run(self, run: str) -> None:
        """Drop the series of a run that is deleted. Where several processes add up, they stay until the restart."""
        with warnings.catch_warnings(action="ignore"):
            of_run = (self.packing, self.run_tokens, self.token_share, self.target_token_share)
            for gauge in (*of_run, self.sealed_step, self.consumed_step):
                gauge.remove_by_labels({"run": run})
            for counter in (self.sync_requests, self.sync_reports, self.sync_stamps):
                counter.remove_by_labels({"run": run})
