"""The thread that receives: it decodes beside the training loop and outlives server restarts.

    server ==bytes==> receiver thread: decode, check, put in sequence ==> inbox ==> training loop
       ^                                                                                 |
       +------- uplink: opens, acks, credits <-------------------------------------------+

It holds no reference to the stream that the training loop has, so that dropping that stream
ends it.
"""

import logging
import threading
import time
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Final

import grpc

from dataserver.client.connection import Channels
from dataserver.client.failover import Failover, clock
from dataserver.client.sequence import Sequence
from dataserver.client.uplink import Uplink
from dataserver.errors import DataServerError, InternalError, PreconditionError, UnavailableError
from dataserver.v1 import batch_service_pb2
from dataserver.weight_sync import Offer, ShutdownHold
from dataserver.wire.micro_batch import MicroBatch
from dataserver.wire.responses import Opened, Response, RunEnded, StepBegun, decode_response
from dataserver.wire.status import error_of

_PATH: Final = "/dataserver.v1.BatchService/StreamMicroBatches"

# A server that was half-closed reads what is under way, acks among it, and ends the stream at
# once; one that does not is cut off.
_HALF_CLOSE_S: Final = 5.0
_CANCEL_S: Final = 5.0

# A connection that lived this long proves that its server works, even if it had nothing to send.
_STABLE_S: Final = 10.0

_logger = logging.getLogger("dataserver.client")


@dataclass(frozen=True, slots=True)
class Failure:
    """The receiver ended, and why."""

    error: DataServerError


Arrival = StepBegun | MicroBatch | Offer | RunEnded | Failure


class Receiver:
    """Receives one rank's stream into `inbox`, across connections and endpoints."""

    def __init__(self, *, channels: Channels, failover: Failover, uplink: Uplink, sequence: Sequence) -> None:
        # By message: to wake the training loop costs as much as to decode a small micro-batch.
        self.inbox: SimpleQueue[list[Arrival]] = SimpleQueue()
        self._channels = channels
        self._failover = failover
        self._uplink = uplink
        self._sequence = sequence
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dataserver-receiver", daemon=True)
        # What a channel returns is an iterator and a call; the stubs only know the one or the other.
        self._call: Any = None
        self._opened: float | None = None
        self._run_ended = self._finished = False
        self.heard: float | None = None
        """When the server in use was called or heard last, by the monotonic clock; None between servers."""

    @property
    def endpoint(self) -> str:
        """The server in use, or to be tried next."""
        return self._failover.endpoint

    @property
    def connected(self) -> bool:
        """Whether a server has accepted the open and is still there."""
        return self._opened is not None

    def check_process(self) -> None:
        """Raise `InvalidRequestError` in a fork: what had arrived is there twice, and nothing more comes."""
        self._channels.check_process()

    def start(self) -> None:
        """Start to receive."""
        self._thread.start()

    def stop(self) -> None:
        """End in bounded time, once acks and all are sent. Idempotent.

        May run anywhere, the garbage collector included, and therefore takes no lock.
        """
        self._stopping.set()
        self._uplink.half_close()
        if self.connected:
            self._join(_HALF_CLOSE_S)
        if self._thread.is_alive() and self._call is not None:
            self._call.cancel()
        self._join(_CANCEL_S)
        self.inbox.put([Failure(PreconditionError("the stream is closed"))])

    def _join(self, timeout_s: float) -> None:
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            while not self._stopping.is_set() and not self._finished:
                try:
                    self._connect_and_receive()
                except UnavailableError as error:
                    self._stopping.wait(self._failover.failed(error))
        except DataServerError as error:
            self.inbox.put([Failure(error)])
        except Exception as error:  # noqa: BLE001  # whoever waits for the inbox must hear of it
            failure = InternalError(f"the receiver met {type(error).__name__}: {error}")
            failure.__cause__ = error
            self.inbox.put([Failure(failure)])

    def _connect_and_receive(self) -> None:
        """Receive over one connection until it ends, which is a fault unless we or the run ended."""
        channel = self._channels.channel(self._failover.endpoint)
        method = channel.stream_stream(_PATH, batch_service_pb2.StreamMicroBatchesRequest.SerializeToString, None)
        self._sequence.reconnect()
        requests = self._uplink.connect(self._sequence.next_step, self._sequence.begin)
        self.heard = time.monotonic()
        self._call = method(requests, metadata=self._channels.settings.metadata)
        try:
            if not self._stopping.is_set():
                self._receive()
        finally:
            self._call.cancel()
            self._uplink.disconnect()
            if self._opened is not None and time.monotonic() - self._opened >= _STABLE_S:
                self._failover.succeeded()
            self._opened = self.heard = None

    def _receive(self) -> None:
        try:
            for data in self._call:
                arrived: list[Arrival] = []
                for response in decode_response(data):
                    self._handle(response, arrived)
                if arrived:
                    self.inbox.put(arrived)
        except grpc.RpcError as failed:
            if not self._stopping.is_set():
                raise error_of(failed) from failed
        self._finished = self._run_ended
        if not self._stopping.is_set() and not self._finished:
            raise UnavailableError(f"{self.endpoint} ended the stream before the run ended")

    def _handle(self, response: Response, arrived: list[Arrival]) -> None:
        """Add to `arrived` what the training loop has not had yet."""
        if isinstance(response, Opened):
            self._opened = self.heard = time.monotonic()
            if response.offer is not None:
                self._handle_offer(response.offer, arrived)
            return
        self._failover.succeeded()
        self.heard = time.monotonic()
        if isinstance(response, StepBegun):
            if self._sequence.admit_step(response):
                arrived.append(response)
        elif isinstance(response, MicroBatch):
            if self._sequence.admit_micro_batch(response):
                self._uplink.arrived()
                arrived.append(response)
            else:
                self._uplink.passed_over()
        elif isinstance(response, Offer):
            self._handle_offer(response, arrived)
        elif isinstance(response, ShutdownHold):
            until = "" if response.deadline is None else f", at most until {clock(response.deadline)}"
            _logger.warning("%s keeps the run open: it waits for %s%s", self.endpoint, response.reason, until)
        elif not self._run_ended:
            # Acks are still to come, and other ranks may depend on them: go on until closed.
            self._run_ended = True
            arrived.append(response)

    def _handle_offer(self, offer: Offer, arrived: list[Arrival]) -> None:
        self._uplink.offered(offer.number)
        if self._sequence.admit_offer(offer):
            arrived.append(offer)
