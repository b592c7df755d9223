"""One version's weights go to the engines: what all ranks do.

    all       rank 0 prepares, and tells the others             (broadcast)
    all       gather to the end, whatever becomes of sending    (all-gathers)
    carriers  digest and send, in a thread beside the gathering
    all       checksum, and whether everyone sent all           (all-reduces)
    rank 0    concludes in the background; the next step begins

A collective depends on the trainer's own ranks alone, so no engine and no orchestrator can
strand one. How long rank 0 may wait while the others wait for it, the configuration bounds.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Final

import torch.distributed as dist

from dataserver.weight_sync import OrchestratorAddress, PolicyVersion, WeightSync
from trainer.agreement import told_by_first
from trainer.launch import World
from trainer.parallel import sum_over_ranks
from trainer.weights.checksum import checksum_over_ranks
from trainer.weights.gather import gather
from trainer.weights.lead import Lead
from trainer.weights.outgoing import Outgoing
from trainer.weights.sender import Sender
from trainer.weights.sync import NotReady, Ready, Sync, TransferError
from trainer.weights.transport import Transport
from trainer.weights.underway import Underway

# A process had better not end while a thread of its own is inside a send; but it must end.
LEFT_BEHIND_S: Final = 5.0


class Handover:
    """Hands versions over, one at a time. `lead`: on rank 0 only."""

    def __init__(
        self,
        *,
        world: World,
        outgoing: Outgoing,
        transport_of: Callable[[Sync], Transport],
        underway: Underway,
        lead: Lead | None,
    ) -> None:
        self._world = world
        self._outgoing = outgoing
        self._transport_of = transport_of
        self._underway = underway
        self._lead = lead
        self._left_behind: list[Sender] = []

    def hand_over(self, version: PolicyVersion, orchestrator: OrchestratorAddress | None) -> Ready | NotReady:
        """Hand over `version`, which the ranks hold. A collective; raises nothing that engines do.

        Returns what the orchestrator answered to the prepare, the same on every rank.
        """
        answer = told_by_first(self._world, lambda: self._prepare(version, orchestrator))
        checksum = fault = ""
        if isinstance(answer, Ready):
            checksum, fault = self._send(answer)
        if self._lead is not None:
            self._lead.conclude(answer, checksum=checksum, fault=fault)
        return answer

    def settled(self) -> list[tuple[WeightSync, int]]:
        """Syncs that have ended since the last call, on rank 0, and the bytes that were to move."""
        return [] if self._lead is None else [(ended, self._outgoing.size) for ended in self._lead.settled()]

    def finish(self) -> None:
        """Wait for what is in flight, within its deadlines. Nothing can be handed over any more."""
        if self._lead is not None:
            self._lead.finish()
        while self._left_behind:
            self._left_behind.pop().join(LEFT_BEHIND_S)

    def _prepare(self, version: PolicyVersion, orchestrator: OrchestratorAddress | None) -> Ready | NotReady:
        if self._lead is None:
            raise TransferError("rank 0 alone prepares a transfer")
        return self._lead.prepare(version, orchestrator)

    def _send(self, ready: Ready) -> tuple[str, str]:
        """Gather and send with all ranks; returns the checksum, and on rank 0 why it is worth nothing, if it is not."""
        transport = self._transport_of(ready.sync) if self._lead is None else self._lead.transport
        digests, fault = self._send_mine(transport, ready)
        checksum = checksum_over_ranks(digests, len(self._outgoing.specs), self._world)
        if self._lead is None:
            transport.leave()
        return checksum, self._faults_of_all(fault)

    def _send_mine(self, transport: Transport, ready: Ready) -> tuple[dict[int, bytes], str]:
        """Gather to the end, and send what this rank carries; returns its digests, or what went wrong."""
        if not any(transport.carries(bucket) for bucket in range(len(self._outgoing.buckets))):
            for _ in gather(self._outgoing, wanted=lambda _: False, device=transport.device):
                pass
            return {}, ""
        sender = Sender(transport, group_size=ready.group_size, deadline_s=ready.send_s)
        with self._woken(sender):
            for bucket in gather(self._outgoing, wanted=transport.carries, device=transport.device):
                sender.put(bucket)
            try:
                return sender.drain(), ""
            except TransferError as error:
                self._left_behind.append(sender)
                return {}, str(error)

    def _woken(self, sender: Sender) -> AbstractContextManager[None]:
        """While inside, an abort ends the sending. Aborts come in on rank 0."""
        return nullcontext() if self._lead is None else self._underway.waiting(sender.cancel)

    def _faults_of_all(self, fault: str) -> str:
        """What went wrong on any rank; a collective of all."""
        if not sum_over_ranks([float(bool(fault))])[0]:
            return ""
        faults = [""] * self._world.size
        dist.all_gather_object(faults, fault)
        return "; ".join(f"rank {rank}: {told}" for rank, told in enumerate(faults) if told)
