"""The backend `dataserver` of vLLM's weight transfer, in each worker.

    init_weight_transfer_engine   the offer is compared with the model; a wrong one is refused, nothing changes
    start_weight_update           vLLM puts the layers aside that it serves from
    update_weights                weights arrive, are digested and loaded, bucket by bucket
    finish_weight_update          the new layers take the place of the old

An update that fails leaves the model half loaded: it stays `open` in the report until the worker's process
ends. Everything that waits has the deadline of the offer, so a trainer that died leaves no worker waiting.
"""

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

from orchestrator.engines.buckets import Buffer, WeightsChecksum
from orchestrator.engines.interface import TensorSpec, Transfer, Transport
from orchestrator.engines.wire import TransferReport, parse_offer
from orchestrator.receivers.bucket import Bucket, Deadline
from orchestrator.receivers.files import receive_files
from orchestrator.receivers.gloo import receive_gloo
from orchestrator.vllm_plugin.held import mismatches, summary, tied_heads
from orchestrator.vllm_plugin.nccl import receive_nccl


@dataclass
class OfferInfo(WeightTransferInitInfo):
    """Body of `init_weight_transfer_engine`."""

    offer: dict[str, Any] = field(default_factory=dict)


@dataclass
class SyncInfo(WeightTransferUpdateInfo):
    """Body of `update_weights`."""

    sync_id: str = ""


class DataServerWeightTransfer(WeightTransferEngine[OfferInfo, SyncInfo]):
    """One worker's side of the transfers; see the module."""

    init_info_cls = OfferInfo
    update_info_cls = SyncInfo
    supports_draft_weight_update = False

    def __init__(self, *arguments: Any, **named: Any) -> None:  # noqa: ANN401
        super().__init__(*arguments, **named)
        self._offer: Transfer | None = None
        self._deadline = Deadline(0)
        self._open = False
        self._problem = ""
        self._checksum = ""

    def report(self) -> TransferReport:
        """Where this worker stands."""
        return TransferReport(
            sync_id="" if self._offer is None else self._offer.sync_id,
            open=self._open,
            problem=self._problem,
            checksum=self._checksum,
        )

    def init_transfer_engine(self, init_info: OfferInfo) -> None:
        """Compares the offer with the model; raises ValueError and changes nothing when they differ."""
        if self._open:
            raise RuntimeError("an update is open: restart this engine")
        offer = parse_offer(init_info.offer)
        self._offer, self._deadline, self._checksum = offer, Deadline(offer.deadline_s), ""
        self._problem = self._compare(offer)
        if self._problem:
            raise ValueError(self._problem)

    def start_weight_update(self) -> None:
        """Puts the layers aside that the engine serves from."""
        if self._open or self._offer is None or self._problem:
            raise RuntimeError("an update is open, or no offer was accepted before it")
        self._open = True
        initialize_layerwise_reload(self.model)

    def receive_weights(self, update_info: SyncInfo) -> None:
        """Loads the weights of the offer as they arrive; raises `TransferError`."""
        offer = self._offer
        if offer is None or not self._open or self._checksum or update_info.sync_id != offer.sync_id:
            raise RuntimeError(f"there is no open update of sync {update_info.sync_id}")
        checksum = WeightsChecksum()

        def load(weights: list[tuple[str, torch.Tensor]]) -> None:
            for _, weight in weights:
                checksum.add(weight.contiguous().view(torch.uint8).reshape(-1).cpu().numpy().data)
            self.model.load_weights(weights)

        with disable_mtp_completeness_check():
            if offer.transport is Transport.NCCL:
                receive_nccl(offer, self.vllm_config, self.device, load, self._deadline)
            else:
                buckets = receive_files if offer.transport is Transport.FILESYSTEM else self._receive_gloo
                for bucket in buckets(offer, self._deadline):
                    load([(tensor.name, self._tensor(tensor, data)) for tensor, data in bucket])
        self._checksum = checksum.hexdigest()

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

    def _compare(self, offer: Transfer) -> str:
        if self.model_config.quantization is not None:
            return f"the engine serves a model quantised by {self.model_config.quantization}, which is not supported"
        if offer.transport is Transport.NCCL and self.device.type != "cuda":
            return f"the engine runs on {self.device.type}, where there is no NCCL: use gloo or filesystem"
        dtype = str(self.model_config.dtype).removeprefix("torch.")
        pipeline = self.parallel_config.pipeline_parallel_size > 1
        return summary(mismatches(self.model, dtype, pipeline, offer.tensors))

    def _receive_gloo(self, offer: Transfer, deadline: Deadline) -> Iterator[Bucket]:
        parallel = self.parallel_config
        rank = offer.first_rank + parallel.data_parallel_index * parallel.world_size + parallel.rank
        return receive_gloo(offer, rank, deadline)

    def _tensor(self, tensor: TensorSpec, data: Buffer) -> torch.Tensor:
        weight = torch.frombuffer(data, dtype=torch.uint8).view(getattr(torch, tensor.dtype))
        return weight.reshape(tensor.shape).to(self.device)
