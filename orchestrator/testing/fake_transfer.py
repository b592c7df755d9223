"""The weights of a fake engine on their way: what was announced, what arrived, what is a mix."""

import threading
from collections.abc import Iterator, Sequence

from dataserver.weight_buckets import TensorSpec, WeightsChecksum
from orchestrator.engines.interface import Transfer, Transport
from orchestrator.receivers.bucket import Bucket, Deadline, ReceiveError
from orchestrator.receivers.files import receive_files, why_unreadable
from orchestrator.testing.events import Events
from orchestrator.testing.faults import Faults


class FakeTransfer:
    """`open`: an update began and has not finished. `problem`: why it was refused or lost. `checksum`: of what came."""

    def __init__(self, tensors: Sequence[TensorSpec] | None, workers: int, events: Events, faults: Faults) -> None:
        self.announced: Transfer | None = None
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

    def announce(self, transfer: Transfer) -> None:
        """Compares it with the model; its time runs from here."""
        self.announced, self.problem, self.checksum = transfer, self._compare(transfer), ""
        self._deadline = Deadline(transfer.deadline_s)

    def receive(self) -> None:
        """Loads what is sent; as in vLLM's workers, a fault is the `problem`. Each worker is a member of the group."""
        transfer = self.announced
        if transfer is None:
            self.problem = "nothing was announced"
            return
        ranks = range(transfer.first_rank, transfer.first_rank + self._workers)
        others = [threading.Thread(target=self._drain, args=(transfer, rank), daemon=True) for rank in ranks[1:]]
        for thread in others:
            thread.start()
        try:
            self.checksum = self._load(transfer, ranks[0])
        except ReceiveError as error:
            self.problem = str(error)
        for thread in others:
            thread.join()

    def _load(self, transfer: Transfer, rank: int) -> str:
        checksum = WeightsChecksum()
        count = 0
        for bucket in self._buckets(transfer, rank):
            for tensor, data in bucket:
                checksum.add(data)
                self._origin[tensor.name] = transfer.sync_id
                count += 1
                self._faults.meet("update", tensors=count)
        return checksum.hexdigest()

    def _buckets(self, transfer: Transfer, rank: int) -> Iterator[Bucket]:
        if transfer.transport is Transport.FILESYSTEM:
            return receive_files(transfer, self._deadline)
        # Only here is torch needed; a communicator of NCCL is played by gloo.
        from orchestrator.receivers.gloo import receive_gloo  # noqa: PLC0415

        return receive_gloo(transfer, rank, self._deadline)

    def _drain(self, transfer: Transfer, rank: int) -> None:
        try:
            for _ in self._buckets(transfer, rank):
                pass
        except ReceiveError as error:
            self._events.write("lost", rank=rank, detail=str(error))

    def _compare(self, transfer: Transfer) -> str:
        if transfer.transport is Transport.FILESYSTEM and (problem := why_unreadable(transfer.directory)):
            return problem
        if self._tensors is None:
            return ""
        held = {tensor.name: tensor for tensor in self._tensors}
        announced = {tensor.name: tensor for tensor in transfer.tensors}
        wrong = sorted(name for name in held.keys() | announced.keys() if held.get(name) != announced.get(name))
        return f"weights that are not those of the model: {', '.join(wrong[:8])}" if wrong else ""
