"""What a stream is put together from, and all streams of a client."""

import weakref

from dataserver.client.connection import Channels
from dataserver.client.eval_stream import EvalStream
from dataserver.client.failover import Failover
from dataserver.client.receiver import Receiver
from dataserver.client.sequence import Sequence
from dataserver.client.stream import StepStream
from dataserver.client.uplink import Uplink
from dataserver.eval_spec import EvalSpec
from dataserver.freed_memory import keep_freed_memory
from dataserver.v1 import batch_service_pb2 as pb
from dataserver.wire.build import built
from dataserver.wire.evals import eval_spec_to_proto
from dataserver.wire.runs import AttemptInfo


class Streams:
    """Opens streams. Ranks spread over the endpoints by their number."""

    def __init__(self, channels: Channels, patience_s: float) -> None:
        self._channels = channels
        self._patience_s = patience_s
        self._open: weakref.WeakSet[StepStream] = weakref.WeakSet()

    def of_attempt(
        self,
        run: str,
        attempt: AttemptInfo,
        *,
        world_rank: int,
        dp_rank: int,
        next_step: int,
        credits: int,  # noqa: A002  # the word of the contract
        takes_offers: bool,
    ) -> StepStream:
        """The steps of an attempt, from `next_step` on, and its offers if they are taken."""
        opened = built(
            pb.Open,
            purpose=pb.PURPOSE_TRAIN,
            run=run,
            attempt=attempt.number,
            attempt_id=attempt.attempt_id,
            world_rank=world_rank,
            dp_rank=dp_rank,
            takes_offers=takes_offers,
        )
        waiter = f"world rank {world_rank} of run {run}, attempt {attempt.number}"
        return self._start(opened, waiter, first=world_rank, next_step=next_step, credits=credits)

    def of_held_out(self, spec: EvalSpec, *, dp_rank: int, dp_world_size: int, credits: int) -> EvalStream:  # noqa: A002
        """A held-out store, from its first row on."""
        opened = built(
            pb.Open,
            purpose=pb.PURPOSE_EVAL,
            eval=eval_spec_to_proto(spec),
            dp_rank=dp_rank,
            dp_world_size=dp_world_size,
        )
        waiter = f"dp rank {dp_rank} of held-out store {spec.store}"
        return EvalStream(self._start(opened, waiter, first=dp_rank, next_step=1, credits=credits))

    def close(self) -> None:
        """Close all that are open. Idempotent."""
        for stream in list(self._open):
            stream.close()

    def _start(self, opened: pb.Open, waiter: str, *, first: int, next_step: int, credits: int) -> StepStream:  # noqa: A002
        keep_freed_memory()
        endpoints = self._channels.settings.endpoints
        failover = Failover(endpoints, first=first, patience_s=self._patience_s, waiter=waiter)
        uplink = Uplink(opened=opened, credits=credits)
        receiver = Receiver(channels=self._channels, failover=failover, uplink=uplink, sequence=Sequence(next_step))
        stream = StepStream(
            receiver=receiver,
            uplink=uplink,
            patience_s=self._patience_s,
            waiter=waiter,
            next_step=next_step,
            takes_offers=opened.takes_offers,
        )
        self._open.add(stream)
        receiver.start()
        return stream
