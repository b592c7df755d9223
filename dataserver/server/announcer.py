"""What the world hears of each store: health by name, metrics, log.

`grpc.health.v1.Health` knows each store as `store/NAME`: SERVING once its rows are served.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from grpc_health.v1 import health_pb2
from grpc_health.v1._async import HealthServicer

from dataserver.stores import Store
from dataserver.streaming.catalog import whole_figures
from dataserver.streaming.metrics import Metrics
from dataserver.wire.store_info import RenderingInfo

log = logging.getLogger(__name__)

# A rendering of hours leaves some hundred lines.
_LINE_EVERY_S: Final = 10.0


class Announcer:
    """Tells of stores; call it from the event loop. `admitted` is told of those that become ready."""

    def __init__(self, metrics: Metrics, health: HealthServicer, admitted: Callable[[str, Store], None] | None) -> None:
        self._metrics = metrics
        self._health = health
        self._admitted = admitted
        self._next_line = 0.0

    async def coming(self, name: str) -> None:
        """It is not served yet."""
        self._metrics.store_ready.labels(name).set(0)
        await self._health.set(f"store/{name}", health_pb2.HealthCheckResponse.NOT_SERVING)

    def rendering(self, name: str, info: RenderingInfo) -> None:
        """It comes nearer."""
        self._metrics.rendered_rows.labels(name).set(info.rows)
        self._metrics.rendered_tokens.labels(name).set(info.tokens)
        if info.left_s is not None:
            self._metrics.render_left.labels(name).set(info.left_s)
        now = time.monotonic()
        if now >= self._next_line:
            self._next_line = now + _LINE_EVERY_S
            log.info("store %s is %s", name, info.text())

    async def ready(self, name: str, store: Store) -> None:
        """Its rows were rendered, and are served from now on."""
        log.info("store %s is rendered: %d rows, fingerprint %s", name, store.rows, store.fingerprint)
        self._metrics.render_left.labels(name).set(0)
        await self.serving(name, store)
        if self._admitted is not None:
            await asyncio.to_thread(self._admitted, name, store)

    async def serving(self, name: str, store: Store) -> None:
        """Its rows are served."""
        self._metrics.store_ready.labels(name).set(1)
        self._metrics.store_rows.labels(name).set(store.rows)
        await self._health.set(f"store/{name}", health_pb2.HealthCheckResponse.SERVING)
        figures = await asyncio.to_thread(whole_figures, store)
        if figures is not None:
            self._metrics.store_tokens.labels(name).set(store.tokens)
            for reason, rows in figures.dropped.items():
                self._metrics.store_dropped.labels(name, reason).set(rows)
