"""For tests of whatever talks to a data server: a real one, on a real socket, in this process.

    write_store(path / "chat", lengths=[5, 9, 4, 300])
    with running_server({"chat": path / "chat"}) as server:
        with DataClient(server.endpoint) as client:
            ...
            server.restart()    # same port, same ledger: clients see a pause

Each server runs in a thread with an event loop of its own.
"""

import asyncio
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import uvloop
from numpy.typing import NDArray

from dataserver.config import ServerConfig, parse_config
from dataserver.cursor import Cursor
from dataserver.hosting.signals import quiet_poller
from dataserver.listening import join_address, split_address
from dataserver.run_spec import BatchSpec
from dataserver.server.app import DataServer
from dataserver.wire.runs import AttemptInfo

# One sample: token ids, and as many 0s and 1s.
RowValues = tuple[Sequence[int], Sequence[int]]

# Admission of a test's stores takes well under a second; a busy machine may take longer.
START_LIMIT_S = 60.0


class RunningServer:
    """A data server in a thread. `endpoint` is `HOST:PORT`; it stays the same over restarts."""

    def __init__(self, config: ServerConfig) -> None:
        self.config = config
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._server: DataServer | None = None
        self._ending = asyncio.Event()

    @property
    def endpoint(self) -> str:
        """Where clients connect to."""
        return self.config.listen

    @property
    def server_id(self) -> str:
        """How this server signs itself in logs; another one after a restart."""
        return "" if self._server is None else self._server.server_id

    @property
    def metrics_endpoint(self) -> str:
        """`HOST:PORT` of `/metrics`, or "" without."""
        if self._server is None or not self._server.metrics_port:
            return ""
        return join_address(split_address(self.config.metrics_listen)[0], self._server.metrics_port)

    def start(self) -> None:
        """Serve. Raises what the server refuses to start with."""
        started: Future[int] = Future()
        self._thread = threading.Thread(target=self._run, args=(started,), name="dataserver-testing")
        self._thread.start()
        port = started.result(START_LIMIT_S)
        host, _ = split_address(self.config.listen)
        self.config = self.config.model_copy(update={"listen": join_address(host, port)})

    def stop(self) -> None:
        """Drain and stop. Idempotent."""
        self.begin_drain()
        thread, self._thread, self._loop = self._thread, None, None
        if thread is not None:
            thread.join()

    def restart(self) -> None:
        """Stop, and start again on the same port and ledger."""
        self.stop()
        self.start()

    def begin_drain(self) -> None:
        """Drain and stop in the background, as SIGTERM would; `stop` waits for the end."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._ending.set)

    def _run(self, started: "Future[int]") -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._serve(started))

    async def _serve(self, started: "Future[int]") -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(quiet_poller)
        self._ending = asyncio.Event()
        self._server = server = DataServer(self.config)
        try:
            port = await server.start()
        except BaseException as error:  # noqa: BLE001 - whoever starts the server raises it
            started.set_exception(error)
            return
        self._loop = loop
        started.set_result(port)
        await self._ending.wait()
        await server.drain()
        await server.stop()


@contextmanager
def running_server(
    stores: Mapping[str, Path | Mapping[str, object]], *, ledger_url: str | None = None, **config: object
) -> Iterator[RunningServer]:
    """Serve `stores` (name -> path, or settings as in `ServerConfig`) until the end of the block.

    Without `ledger_url` the ledger is a new SQLite file. `config` overrides fields of `ServerConfig`; by default the
    server listens on a free loopback port and serves no metrics.
    """
    with tempfile.TemporaryDirectory(prefix="dataserver-testing-") as directory:
        settings: dict[str, object] = {
            "listen": "127.0.0.1:0",
            "metrics_listen": "",
            "ledger": ledger_url or f"sqlite:///{directory}/ledger.db",
            "stores": {
                name: dict(given) if isinstance(given, Mapping) else {"path": given} for name, given in stores.items()
            },
            "index_dir": Path(directory) / "indexes",
            "drain_s": 5.0,
        }
        server = RunningServer(parse_config(settings | config))
        server.start()
        try:
            yield server
        finally:
            server.stop()


def write_store(
    path: Path,
    *,
    lengths: Sequence[int] | None = None,
    rows: Sequence[RowValues] | None = None,
    format: Literal["arrow", "parquet"] = "arrow",  # noqa: A002 - the store's word
    shards: int = 1,
    vocab_size: int = 1000,
    seed: int = 0,
) -> Path:
    """Write a store as a directory of `shards` files; return `path`.

    Give either `rows` or `lengths`: then the tokens are random below `vocab_size`, and every token but the first
    third of each row is a target.
    """
    if (rows is None) == (lengths is None):
        raise ValueError("give either rows or lengths")
    values = synthetic_rows(lengths, vocab_size=vocab_size, seed=seed) if lengths is not None else list(rows or ())
    path.mkdir(parents=True, exist_ok=True)
    for shard, members in enumerate(np.array_split(np.arange(len(values)), shards)):
        table = pa.table(
            {
                "input_ids": pa.array([values[i][0] for i in members], pa.list_(pa.int32())),
                "loss_mask": pa.array([values[i][1] for i in members], pa.list_(pa.int8())),
            }
        )
        file = path / f"data-{shard:05d}-of-{shards:05d}.{format}"
        if format == "parquet":
            pq.write_table(table, file)
        else:
            with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table)
    return path


def synthetic_rows(
    lengths: Sequence[int], *, vocab_size: int, seed: int
) -> list[tuple[NDArray[np.int32], NDArray[np.int8]]]:
    """Random rows of the given lengths."""
    random = np.random.default_rng(seed)
    return [
        (
            random.integers(0, vocab_size, length, dtype=np.int32),
            (np.arange(length) >= length // 3).astype(np.int8),
        )
        for length in lengths
    ]


def attempt_info(number: int = 1, *, base: Cursor | None = None) -> AttemptInfo:
    """An attempt of one rank that no ledger issued, for what plays a server or a feed."""
    base = base or Cursor(order_fingerprint="")
    return AttemptInfo(
        number=number,
        attempt_id=f"{number:032x}",
        base=base,
        version=base.step,
        world_size=1,
        dp_world_size=1,
        batch=BatchSpec(step_samples=1, micro_batch_tokens=1024),
        holder="holder",
        begin_time=0.0,
        lease_expire_time=0.0,
    )
