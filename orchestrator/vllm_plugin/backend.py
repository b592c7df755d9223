"""The backend `dataserver` of vLLM's weight transfer, in each worker.

    init_weight_transfer_engine   what is announced is compared with the model; nothing changes
    start_weight_update           vLLM puts the layers aside that it serves from
    update_weights                weights arrive, are digested and loaded, bucket by bucket
    finish_weight_update          the new layers take the place of the old

What goes wrong is told in the report and not raised: when one of several workers raises, vLLM (0.32)
leaves the answers of the others unread and takes them for those of later calls.

An update that fails leaves the model half loaded: it stays `open` in the report until the worker's process
ends. Everything that waits has the deadline of the transfer, so a trainer that died leaves no worker waiting.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.model_executor.model_loader.mtp_validation import disable_mtp_completeness_check
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

from dataserver.weight_buckets import Buffer, TensorSpec, WeightsChecksum
from orchestrator.engines.interface import Transfer, Transport
from orchestrator.engines.wire import TransferReport, parse_transfer
from orchestrator.receivers.bucket import Bucket, Deadline
from orchestrator.receivers.files import receive_files, why_unreadable
from orchestrator.receivers.gloo import receive_gloo
from orchestrator.vllm_plugin.held import mismatches, summary, tied_heads
from orchestrator.vllm_plugin.nccl import receive_nccl

logger = logging.getLogger(__name__)


@dataclass
class TransferInfo(WeightTransferInitInfo):
    """Body of `init_weight_transfer_engine`."""

    transfer: dict[str, Any] = field(default_factory=dict)


@dataclass
class SyncInfo(WeightTransferUpdateInfo):
    """Body of `update_weights`."""

    sync_id: str = ""


class DataServerWeightTransfer(WeightTransferEngine[TransferInfo, SyncInfo]):
    """One worker's side of the transfers; see the module."""

    init_info_cls = TransferInfo
    update_info_cls = SyncInfo
    supports_draft_weight_update = False

    def __init__(self, *arguments: Any, **named: Any) -> None:  # noqa: ANN401
        super().__init__(*arguments, **named)
        self._transfer: Transfer | None = None
        self._deadline = Deadline(0)
        self._open = False
        self._problem = ""
        self._checksum = ""

    def report(self) -> TransferReport:
        """Where this worker stands."""
        return TransferReport(
            sync_id="" if self._transfer is None else self._transfer.sync_id,
            open=self._open,
            problem=self._problem,
            checksum=self._checksum,
        )

    def init_transfer_engine(self, init_info: TransferInfo) -> None:
        """Compares what is announced with the model; a difference is the report's `problem`."""
        if self._open:
            self._problem = "an update is open: restart this engine"
            return
        try:
            self._transfer = parse_transfer(init_info.transfer)
        except ValueError as error:
            self._transfer, self._problem = None, str(error)
            return
        self._deadline, self._checksum = Deadline(self._transfer.deadline_s), ""
        self._problem = self._compare(self._transfer)

    def start_weight_update(self) -> None:
        """Puts the layers aside that the engine serves from."""
        if self._open or self._transfer is None or self._problem:
            raise RuntimeError(self._problem or "an update is open, or none was announced")
        self._open = True
        initialize_layerwise_reload(self.model)

    def receive_weights(self, update_info: SyncInfo) -> None:
        """Loads the weights as they arrive; a fault is the report's `problem`."""
        transfer = self._transfer
        if transfer is None or not self._open or self._checksum or update_info.sync_id != transfer.sync_id:
            self._problem = f"there is no open update of sync {update_info.sync_id}"
            return
        try:
            self._checksum = self._receive(transfer)
        except Exception as error:
            logger.exception("sync %s failed", transfer.sync_id)
            self._problem = str(error) or type(error).__name__

    def _receive(self, transfer: Transfer) -> str:
        checksum = WeightsChecksum()

        def load(weights: list[tuple[str, torch.Tensor]]) -> None:
            for _, weight in weights:
                checksum.add(weight.contiguous().view(torch.uint8).reshape(-1).cpu().numpy().data)
            self.model.load_weights(weights)

        with disable_mtp_completeness_check():
            if transfer.transport is Transport.NCCL:
                receive_nccl(transfer, self.vllm_config, self.device, load, self._deadline)
            else:
                buckets = receive_files if transfer.transport is Transport.FILESYSTEM else self._receive_gloo
                for bucket in buckets(transfer, self._deadline):
                    load([(tensor.name, self._tensor(tensor, data)) for tensor, data in bucket])
        return checksum.hexdigest()

    def finish_weight_update(self) -> None:
        """Puts the new layers in the place of the old."""
        if not self._checksum:
            raise RuntimeError("the update did not come to its end")
        finalize_layerwise_reload(self.model, self.model_config)
        # A tied head was loaded by another name. On CPUs it computes from a packed copy, which is still the old one.
        for head in tied_heads(self.model):
            head.quant_method.process_weights_after_loading(head)
        self._open = False

    def shutdown(self) -> None:
        """Nothing outlives a transfer."""

    def _compare(self, transfer: Transfer) -> str:
        if self.model_config.quantization is not None:
            return f"the engine serves a model quantised by {self.model_config.quantization}, which is not supported"
        if transfer.transport is Transport.NCCL and self.device.type != "cuda":
            return f"the engine runs on {self.device.type}, where there is no NCCL: use gloo or filesystem"
        if transfer.transport is Transport.FILESYSTEM and (problem := why_unreadable(transfer.directory)):
            return problem
        dtype = str(self.model_config.dtype).removeprefix("torch.")
        pipeline = self.parallel_config.pipeline_parallel_size > 1
        return summary(mismatches(self.model, dtype, pipeline, transfer.tensors))

    def _receive_gloo(self, transfer: Transfer, deadline: Deadline) -> Iterator[Bucket]:
        parallel = self.parallel_config
        rank = transfer.first_rank + parallel.data_parallel_index * parallel.world_size + parallel.rank
        return receive_gloo(transfer, rank, deadline)

    def _tensor(self, tensor: TensorSpec, data: Buffer) -> torch.Tensor:
        weight = torch.frombuffer(data, dtype=torch.uint8).view(getattr(torch, tensor.dtype))
        return weight.reshape(tensor.shape).to(self.device)
