"""What a server is made of, from its stores to its port.

start   ledger opened -> stores admitted -> services registered -> port bound -> SERVING -> conversations rendered
drain   NOT_SERVING -> no new streams -> running ones end with UNAVAILABLE -> clients go elsewhere
stop    calls under way get a moment, then everything is closed
"""

import asyncio
import logging
import os
import secrets
import socket
from collections.abc import Callable

import grpc
from grpc_channelz.v1 import channelz
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1._async import HealthServicer
from grpc_health.v1.health import SERVICE_NAME as HEALTH_SERVICE
from grpc_reflection.v1alpha import reflection
from prometheus_client import CollectorRegistry, ProcessCollector

from dataserver.config import ServerConfig
from dataserver.hosting.credentials import TokenCheck, read_token, server_credentials
from dataserver.hosting.guard import Guard
from dataserver.hosting.listen import bind, server_options
from dataserver.hosting.metrics_endpoint import MetricsEndpoint
from dataserver.ledger import Ledger, open_ledger
from dataserver.server.announcer import Announcer
from dataserver.server.text_sources import TextSources
from dataserver.services import batch_service
from dataserver.services.batch_service import BatchService
from dataserver.services.cursor_service import CursorService
from dataserver.services.run_service import RunService
from dataserver.services.store_service import StoreService
from dataserver.services.weight_sync_service import WeightSyncService
from dataserver.stores import Store
from dataserver.streaming.catalog import ReportStoreBytes, StoreCatalog, open_catalog
from dataserver.streaming.contexts import RunContexts
from dataserver.streaming.held_out import HeldOuts
from dataserver.streaming.metrics import Metrics
from dataserver.streaming.registry import Registry
from dataserver.streaming.threads import Threads
from dataserver.streaming.waits import Waits
from dataserver.v1.cursor_service_pb2_grpc import add_CursorServiceServicer_to_server
from dataserver.v1.run_service_pb2_grpc import add_RunServiceServicer_to_server
from dataserver.v1.store_service_pb2_grpc import add_StoreServiceServicer_to_server
from dataserver.v1.weight_sync_service_pb2_grpc import add_WeightSyncServiceServicer_to_server

log = logging.getLogger(__name__)

SERVICES = (
    batch_service.SERVICE_NAME,
    "dataserver.v1.CursorService",
    "dataserver.v1.RunService",
    "dataserver.v1.StoreService",
    "dataserver.v1.WeightSyncService",
)

# Health watches never end by themselves; they get this long to see NOT_SERVING.
WATCHERS_S = 0.5


class DataServer:
    """One server in this process. `start` once, then `drain` and `stop`; both are idempotent."""

    def __init__(
        self,
        config: ServerConfig,
        *,
        reuse_port: bool = False,
        progress: ReportStoreBytes | None = None,
        admitted: Callable[[str, Store], None] | None = None,
    ) -> None:
        self.config = config
        self.server_id = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self.metrics_port = 0
        self._reuse_port = reuse_port
        self._progress = progress
        self._admitted = admitted
        self._closers: list[Callable[[], object]] = []
        self._server: grpc.aio.Server | None = None
        self._guard: Guard | None = None
        self._registry: Registry | None = None
        self._health: HealthServicer | None = None
        self._text_sources: TextSources | None = None
        self._stopped = False

    async def start(self) -> int:
        """Serve; return the port. Raises what stores, ledger or configuration are refused with."""
        try:
            return await self._start()
        except BaseException:
            await self.stop()
            raise

    async def drain(self) -> None:
        """Say NOT_SERVING, end all streams, and wait up to `drain_s` for calls under way to end."""
        if self._text_sources is not None:
            await self._text_sources.close()
        if self._registry is None or self._guard is None or self._health is None:
            return
        await self._health.enter_graceful_shutdown()
        self._registry.drain()
        if not await self._guard.wait_idle(self.config.drain_s):
            log.warning("some calls did not end within %g s; they are cut off", self.config.drain_s)

    async def stop(self) -> None:
        """Cut off what still runs and close everything."""
        if self._stopped:
            return
        self._stopped = True
        if self._text_sources is not None:
            await self._text_sources.close()
        if self._server is not None:
            await self._server.stop(WATCHERS_S)
        if self._registry is not None:
            await self._registry.close()
        for close in reversed(self._closers):
            close()

    async def _start(self) -> int:
        registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        metrics = Metrics(registry)
        credentials = server_credentials(self.config.tls) if self.config.tls else None
        token = read_token(self.config.token_file) if self.config.token_file else None
        if self.config.metrics_listen:
            endpoint = MetricsEndpoint(self.config.metrics_listen, registry)
            self.metrics_port = endpoint.start()
            self._closers.append(endpoint.close)
        ledger = await asyncio.to_thread(open_ledger, self.config.ledger, lease_s=self.config.lease_s)
        self._closers.append(ledger.close)
        catalog = await asyncio.to_thread(
            open_catalog,
            self.config,
            progress=self._progress,
            admitted=self._admitted,
            counted=metrics.count_disk_cache,
        )
        self._closers.append(catalog.close)
        self._guard = Guard(metrics.requests, "dataserver.v1")
        interceptors = ([TokenCheck(token)] if token else []) + [self._guard]
        options = server_options(
            max_message_bytes=self.config.max_message_bytes,
            keepalive_s=self.config.keepalive_s,
            keepalive_timeout_s=self.config.keepalive_timeout_s,
            reuse_port=self._reuse_port,
        )
        self._server = grpc.aio.server(interceptors=interceptors, options=options)
        self._health = HealthServicer()
        await self._add_services(self._server, ledger, catalog, metrics)
        await self._add_health(self._server, self._health)
        self._text_sources = await self._announced(catalog, Announcer(metrics, self._health, self._admitted))
        port = bind(self._server, self.config.listen, credentials)
        await self._server.start()
        self._text_sources.start()
        return port

    async def _announced(self, catalog: StoreCatalog, announcer: Announcer) -> TextSources:
        """Say which stores are served; what is to be rendered."""
        for name in catalog.names:
            if name in catalog.coming:
                await announcer.coming(name)
            else:
                await announcer.serving(name, catalog.get(name))
        return TextSources(self.config, catalog, announcer)

    async def _add_services(
        self, server: grpc.aio.Server, ledger: Ledger, catalog: StoreCatalog, metrics: Metrics
    ) -> None:
        config = self.config
        threads = Threads(metrics, ledger_wait_s=config.ledger_wait_s, plan_wait_s=config.plan_wait_s)
        self._closers.append(threads.close)
        contexts = RunContexts(catalog, threads)
        waits = Waits(metrics)
        streams = Registry(
            config,
            server_id=self.server_id,
            ledger=ledger,
            threads=threads,
            contexts=contexts,
            metrics=metrics,
            waits=waits,
        )
        self._registry = streams
        held_outs = HeldOuts(
            registry=streams, contexts=contexts, threads=threads, max_message_bytes=config.max_message_bytes
        )
        BatchService(config, registry=streams, held_outs=held_outs, waits=waits, metrics=metrics).add_to_server(server)
        add_RunServiceServicer_to_server(  # type: ignore[no-untyped-call]
            RunService(config, ledger=ledger, threads=threads, contexts=contexts, registry=streams, metrics=metrics),
            server,
        )
        add_CursorServiceServicer_to_server(  # type: ignore[no-untyped-call]
            CursorService(ledger=ledger, threads=threads, contexts=contexts, registry=streams), server
        )
        add_StoreServiceServicer_to_server(  # type: ignore[no-untyped-call]
            StoreService(catalog=catalog, threads=threads, max_message_bytes=config.max_message_bytes), server
        )
        add_WeightSyncServiceServicer_to_server(  # type: ignore[no-untyped-call]
            WeightSyncService(ledger=ledger, threads=threads, registry=streams, metrics=metrics), server
        )
        streams.start()

    async def _add_health(self, server: grpc.aio.Server, health: HealthServicer) -> None:
        health_pb2_grpc.add_HealthServicer_to_server(health, server)
        for name in SERVICES:
            await health.set(name, health_pb2.HealthCheckResponse.SERVING)
        channelz.add_channelz_servicer(server)  # type: ignore[arg-type]
        reflection.enable_server_reflection(
            (*SERVICES, HEALTH_SERVICE, reflection.SERVICE_NAME, "grpc.channelz.v1.Channelz"), server
        )
