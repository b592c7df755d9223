"""What an orchestrator is made of, from its port to its end.

start   port bound -> services registered -> the data server watched -> SERVING
run     lease taken -> one reign -> lease lost: again | run and evals over, or told to end: done
stop    NOT_SERVING -> lease given back -> reports delivered -> everything closed

Without the lease it answers, and refuses: another one may be the run's.
"""

import asyncio
import logging
import os
import secrets
import socket
from collections.abc import Callable, Coroutine, Sequence

import grpc
from grpc_channelz.v1 import channelz
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1._async import HealthServicer
from grpc_health.v1.health import SERVICE_NAME as HEALTH_SERVICE
from grpc_reflection.v1alpha import reflection
from prometheus_client import CollectorRegistry, ProcessCollector

from dataserver.client import DataClient
from dataserver.hosting.credentials import TokenCheck, read_token, server_credentials
from dataserver.hosting.guard import Guard
from dataserver.hosting.listen import bind, server_options
from dataserver.hosting.metrics_endpoint import MetricsEndpoint
from dataserver.listening import join_address, split_address
from dataserver.weight_sync import WeightSync
from orchestrator.config import EngineConfig, OrchestratorConfig
from orchestrator.data_server import DataServer, Watcher
from orchestrator.engines.interface import Engine
from orchestrator.engines.vllm_http import VllmEngine, VllmLimits
from orchestrator.evals.director import EvalDirector
from orchestrator.evaluation import Evaluation
from orchestrator.lease import Lease
from orchestrator.metrics import Metrics
from orchestrator.pool import Pool
from orchestrator.reign import Evals, NoEvals, Reign
from orchestrator.reports import Reports
from orchestrator.services.eval_service import EvalService
from orchestrator.services.transfer_service import WeightTransferService
from orchestrator.trainer_calls import TrainerCalls
from orchestrator.v1.eval_service_pb2_grpc import add_EvalServiceServicer_to_server
from orchestrator.v1.weight_transfer_service_pb2_grpc import add_WeightTransferServiceServicer_to_server

log = logging.getLogger(__name__)

PACKAGE = "orchestrator.v1"
SERVICES = (f"{PACKAGE}.WeightTransferService", f"{PACKAGE}.EvalService")

# A prepare names every weight of the model.
LARGEST_MESSAGE_BYTES = 2**26
KEEPALIVE_S = 30.0
KEEPALIVE_TIMEOUT_S = 20.0

# At the end: for reports that wait for the data server, and for calls under way.
LAST_WORDS_S = 5.0
GRACE_S = 0.5


class Orchestrator:
    """One orchestrator in this process. `start`, then `run` to its end; `stop` is idempotent.

    Make it inside an event loop. `endpoints`: data servers, `HOST:PORT[,HOST:PORT…]`.
    """

    def __init__(self, config: OrchestratorConfig, endpoints: str) -> None:
        self.config = config
        self.metrics_port = 0
        self.ending = asyncio.Event()
        self._endpoints = endpoints
        self._reign: Reign | None = None
        self._closers: list[Callable[[], object]] = []
        self._engines: tuple[Engine, ...] = ()
        self._server: grpc.aio.Server | None = None
        self._health = HealthServicer()
        self._reporting: asyncio.Task[None] | None = None
        self._stopped = False

    async def start(self) -> str:
        """Serve; returns the address that trainers are told. Raises what the configuration is refused with."""
        try:
            return await self._start()
        except BaseException:
            await self.stop()
            raise

    async def run(self) -> None:
        """Until the run and its evals are over, or `ending` is set. Raises what no waiting mends."""
        while not self.ending.is_set():
            epoch = await self._unless_ending(self._lease.take())
            if epoch is None:
                return
            self._metrics.epoch.set(epoch)
            self._reign = Reign(
                self.config,
                epoch=epoch,
                server=self._data_server,
                watcher=self._watcher,
                pool=self._pool,
                lease=self._lease,
                metrics=self._metrics,
                trainer=self._trainer,
                report=self._report,
                evals=self._evals,
            )
            try:
                if await self._reign.run(self.ending, self.config.serve.drain_s):
                    return
            finally:
                self._reign = None
                self._metrics.epoch.set(0)

    async def stop(self) -> None:
        """Close everything."""
        if self._stopped:
            return
        self._stopped = True
        await self._health.enter_graceful_shutdown()
        if self._reporting is not None:
            await self._last_words(self._reporting)
        if self._server is not None:
            await self._server.stop(GRACE_S)
        for engine in self._engines:
            await engine.close()
        for close in reversed(self._closers):
            close()

    # Inside

    async def _start(self) -> str:
        config = self.config
        registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self._metrics = Metrics(registry)
        if config.serve.metrics_listen:
            endpoint = MetricsEndpoint(config.serve.metrics_listen, registry)
            self.metrics_port = endpoint.start()
            self._closers.append(endpoint.close)
        address = await self._serve()
        self._trainer = TrainerCalls(config.trainer)
        client = DataClient(
            self._endpoints,
            token=read_token(config.data.token_file) if config.data.token_file else None,
            ca=config.data.ca_file,
            patience_s=config.pool.lease_s,
        )
        self._data_server = DataServer(client)
        self._closers += [self._data_server.close, client.close]
        self._engines = tuple(engine_of(each, lambda: self._lease.alive) for each in config.engines)
        self._pool = Pool(self._engines, changed=self._wake)
        self._watcher = Watcher(client, config.run.name, self._wake)
        self._closers.append(self._watcher.close)
        self._evaluation = Evaluation(config, self._data_server, client, self._metrics)
        self._closers.append(self._evaluation.close)
        await self._evaluation.open()
        self._watcher.start()
        self._reports = Reports(self._data_server, config.run.name)
        self._reporting = asyncio.create_task(self._reports.run(), name="reports")
        holder = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self._lease = Lease(
            self._data_server, run=config.run.name, holder=holder, address=address, ttl_s=config.pool.lease_s
        )
        return address

    async def _serve(self) -> str:
        serve = self.config.serve
        credentials = server_credentials(serve.tls) if serve.tls else None
        token = read_token(serve.token_file) if serve.token_file else None
        interceptors = ([TokenCheck(token)] if token else []) + [Guard(self._metrics.requests, PACKAGE)]
        options = server_options(
            max_message_bytes=LARGEST_MESSAGE_BYTES,
            largest_request_bytes=LARGEST_MESSAGE_BYTES,
            keepalive_s=KEEPALIVE_S,
            keepalive_timeout_s=KEEPALIVE_TIMEOUT_S,
        )
        self._server = server = grpc.aio.server(interceptors=interceptors, options=options)
        transfers = WeightTransferService(lambda: None if self._reign is None else self._reign.coordinator)
        add_WeightTransferServiceServicer_to_server(transfers, server)  # type: ignore[no-untyped-call]
        add_EvalServiceServicer_to_server(EvalService(self._director), server)  # type: ignore[no-untyped-call]
        await self._add_standard_services(server, SERVICES)
        port = bind(server, serve.listen, credentials)
        await server.start()
        return serve.advertise or join_address(split_address(serve.listen)[0], port)

    async def _add_standard_services(self, server: grpc.aio.Server, services: Sequence[str]) -> None:
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        for name in services:
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        channelz.add_channelz_servicer(server)  # type: ignore[arg-type]
        standard = (HEALTH_SERVICE, reflection.SERVICE_NAME, "grpc.channelz.v1.Channelz")
        reflection.enable_server_reflection((*services, *standard), server)

    def _evals(self, changed: Callable[[], None]) -> Evals:
        return self._evaluation.director(self._pool, changed) if self.config.evals else NoEvals()

    def _director(self) -> EvalDirector | None:
        evals = None if self._reign is None else self._reign.evals
        return evals if isinstance(evals, EvalDirector) else None

    def _wake(self) -> None:
        if self._reign is not None:
            self._reign.wake()

    def _report(self, sync: WeightSync) -> None:
        self._metrics.count_sync(sync)
        self._reports.add(sync)

    async def _unless_ending(self, taking: Coroutine[None, None, int]) -> int | None:
        """What `taking` brings, unless the orchestrator is told to end first."""
        take, end = asyncio.ensure_future(taking), asyncio.ensure_future(self.ending.wait())
        try:
            await asyncio.wait([take, end], return_when=asyncio.FIRST_COMPLETED)
            return take.result() if take.done() else None
        finally:
            take.cancel()
            end.cancel()

    async def _last_words(self, reporting: "asyncio.Task[None]") -> None:
        try:
            async with asyncio.timeout(LAST_WORDS_S):
                await self._reports.delivered()
                await self._lease.release()
        except TimeoutError:
            log.warning("the data server does not answer: what it was to be told is lost")
        reporting.cancel()
        await asyncio.wait([reporting])


def engine_of(config: EngineConfig, may_call: Callable[[], bool]) -> Engine:
    """The engine that `[[engines]]` describes; nothing is called yet, nor ever while `may_call` says no."""
    limits = VllmLimits(generate_s=config.generate_timeout_s, restart_s=config.restart_timeout_s)
    return VllmEngine(config.name, config.url, restart=config.restart, limits=limits, may_call=may_call)
