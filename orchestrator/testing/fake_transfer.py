"""The weights of a fake engine on their way: what was offered, what arrived, what is a mix."""

import threading
from collections.abc import Iterator, Sequence

from orchestrator.engines.buckets import WeightsChecksum
from orchestrator.engines.interface import TensorSpec, Transfer, Transport
from orchestrator.receivers.bucket import Bucket, Deadline, TransferError
from orchestrator.receivers.files import receive_files
from orchestrator.testing.events import Events
from orchestrator.testing.faults import Faults


class FakeTransfer:
    """`open`: an update began and has not finished. `problem`: why the offer was refused. `checksum`: of what came."""

    def __init__(self, tensors: Sequence[TensorSpec] | None, workers: int, events: Events, faults: Faults) -> None:
        self.offer: Transfer | None = None
        self.open = False
        self.problem = ""
        self.checksum = ""
        self._tensors = None if tensors is None else tuple(tensors)
        self._workers = workers
        self._events = events
        self._faults = faults
        self._deadline = Deadline(0)
        # Which sync each weight came from.
        self._origin: dict[str, str] = {}

    @property
    def origins(self) -> list[str]:
        """The syncs that the weights came from; more than one: a mix."""
        return sorted(set(self._origin.values()))

    def take(self, offer: Transfer) -> None:
        """Compares the offer with the model; the time of the transfer runs from here."""
        self.offer, self.problem, self.checksum = offer, self._compare(offer), ""
        self._deadline = Deadline(offer.deadline_s)

    def receive(self) -> None:
        """Loads what is sent, weight by weight; raises `TransferError`. Each worker is a member of the group."""
        if self.offer is None:
            raise TransferError("nothing was offered")
        ranks = range(self.offer.first_rank, self.offer.first_rank + self._workers)
        others = [threading.Thread(target=self._drain, args=(self.offer, rank), daemon=True) for rank in ranks[1:]]
        for thread in others:
            thread.start()
        checksum = WeightsChecksum()
        count = 0
        for bucket in self._buckets(self.offer, ranks[0]):
            for tensor, data in bucket:
                checksum.add(data)
                self._origin[tensor.name] = self.offer.sync_id
                count += 1
                self._faults.meet("update", tensors=count)
        for thread in others:
            thread.join()
        self.checksum = checksum.hexdigest()

    def _buckets(self, offer: Transfer, rank: int) -> Iterator[Bucket]:
        if offer.transport is Transport.FILESYSTEM:
            return receive_files(offer, self._deadline)
        # Only here is torch needed; a communicator of NCCL is played by gloo.
        from orchestrator.receivers.gloo import receive_gloo  # noqa: PLC0415

        return receive_gloo(offer, rank, self._deadline)

    def _drain(self, offer: Transfer, rank: int) -> None:
        try:
            for _ in self._buckets(offer, rank):
                pass
        except TransferError as error:
            self._events.write("lost", rank=rank, detail=str(error))

    def _compare(self, offer: Transfer) -> str:
        if self._tensors is None:
            return ""
        held = {tensor.name: tensor for tensor in self._tensors}
        offered = {tensor.name: tensor for tensor in offer.tensors}
        wrong = sorted(name for name in held.keys() | offered.keys() if held.get(name) != offered.get(name))
        return f"weights that are not those of the model: {', '.join(wrong[:8])}" if wrong else ""
