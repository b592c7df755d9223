"""Runs under vLLM's Python: what of the NCCL way needs no GPU. Prints what the test compares."""

import json
import time
from dataclasses import asdict
from types import SimpleNamespace

import torch
from vllm.distributed.weight_transfer import WeightTransferEngineFactory
from vllm.distributed.weight_transfer.nccl_common import worker_init_payload

from dataserver.weight_buckets import TensorSpec
from orchestrator.engines.interface import Transfer, Transport
from orchestrator.receivers.bucket import Deadline, ReceiveError
from orchestrator.vllm_plugin import BACKEND, register
from orchestrator.vllm_plugin.nccl import init_info, receive_nccl, update_info

TRANSFER = Transfer(
    sync_id="0" * 32,
    transport=Transport.NCCL,
    tensors=(TensorSpec(name="w", dtype="bfloat16", shape=(2, 3)), TensorSpec(name="b", dtype="float32", shape=(3,))),
    bucket_bytes=64,
    deadline_s=300,
    rendezvous="127.0.0.1:29999",
    group_size=3,
    first_rank=2,
)


def fault() -> str:
    """How a worker without a GPU ends the transfer: at once, with an error of ours."""
    config = SimpleNamespace(
        parallel_config=SimpleNamespace(data_parallel_index=0, world_size=1, rank=0), model_config=None
    )
    try:
        receive_nccl(TRANSFER, config, torch.device("cpu"), lambda _weights: None, Deadline(300))
    except ReceiveError as error:
        return str(error)
    return ""


def main() -> None:
    register()
    register()
    begun = time.monotonic()
    found = {
        "backend": WeightTransferEngineFactory._registry[BACKEND]().__name__,
        "init": worker_init_payload(init_info(TRANSFER)),
        "update": asdict(update_info(TRANSFER)),
        "fault": fault(),
        "seconds": time.monotonic() - begun,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
