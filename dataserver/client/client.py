"""The data server, as trainers, orchestrators and people's programs call it."""

from pathlib import Path
from types import TracebackType
from typing import Final, Self

from dataserver.client.calls import Calls
from dataserver.client.connection import Channels, ConnectionSettings, parse_endpoints
from dataserver.client.cursor_calls import CursorCalls
from dataserver.client.eval_stream import EvalStream
from dataserver.client.run_calls import RunCalls
from dataserver.client.store_calls import StoreCalls
from dataserver.client.stream import StepStream
from dataserver.client.streams import Streams
from dataserver.client.sync_calls import SyncCalls
from dataserver.eval_spec import EvalSpec
from dataserver.wire import runs

DEFAULT_CREDITS: Final = 16
"""Micro-batches in flight: one in use and some in store, of which two already hide the network."""


class DataClient(RunCalls, CursorCalls, StoreCalls, SyncCalls):
    """A client of one or several equal data servers.

    `endpoints`: `host:port[,host:port…]`. `token`: bearer token. `ca`: PEM file with the CA of
    the servers' certificates; without it, plaintext. `patience_s`: seconds for which a server
    that is away or silent is waited for.

    Connects when first called. Methods raise the class of `dataserver.errors` that the server
    raised; only UNAVAILABLE is tried again, for `patience_s`. May be used by several threads,
    but not across a fork.
    """

    def __init__(
        self, endpoints: str, *, token: str | None = None, ca: str | Path | None = None, patience_s: float = 600.0
    ) -> None:
        settings = ConnectionSettings(
            endpoints=parse_endpoints(endpoints), token=token, ca=None if ca is None else Path(ca)
        )
        self._channels = Channels(settings)
        self._calls = Calls(self._channels, patience_s)
        self._streams = Streams(self._channels, patience_s)

    def close(self) -> None:
        """Close all streams and connections. Idempotent."""
        self._streams.close()
        self._channels.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def stream(
        self,
        run: str,
        attempt: runs.AttemptInfo,
        *,
        world_rank: int,
        dp_rank: int,
        next_step: int,
        credits: int = DEFAULT_CREDITS,  # noqa: A002  # the word of the contract
        takes_offers: bool = False,
    ) -> StepStream:
        """Stream the steps of one rank from `next_step` on (`attempt.base.step + 1` at first).

        `attempt`: what world rank 0's `begin_attempt` returned.
        `credits`: micro-batches that may be in flight or waiting. Ranks spread over the
        endpoints by `world_rank`. `takes_offers`: the rank hands weights over outside steps too; the same on all ranks.
        """
        return self._streams.of_attempt(
            run,
            attempt,
            world_rank=world_rank,
            dp_rank=dp_rank,
            next_step=next_step,
            credits=credits,
            takes_offers=takes_offers,
        )

    def eval_stream(
        self,
        spec: EvalSpec,
        *,
        dp_rank: int = 0,
        dp_world_size: int = 1,
        credits: int = DEFAULT_CREDITS,  # noqa: A002  # the word of the contract
    ) -> EvalStream:
        """Stream a held-out store, every row once and in order, shared out among `dp_world_size` ranks.

        Needs no run, and changes none. Raises what the store or the spec is refused with at the first micro-batch.
        """
        return self._streams.of_held_out(spec, dp_rank=dp_rank, dp_world_size=dp_world_size, credits=credits)
