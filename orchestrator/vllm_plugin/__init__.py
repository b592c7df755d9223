"""Runs inside vLLM's workers: how they take new weights from a trainer, and say what they took.

    vllm serve MODEL --weight-transfer-config '{"backend": "dataserver"}' \
                     --worker-extension-cls orchestrator.vllm_plugin.worker.WorkerReports

vLLM finds `register` by its entry point (group `vllm.general_plugins`). One backend takes all
transports: each transfer names its own. This package is the only one that imports vLLM, and
whatever it imports of ours needs nothing but xxhash and safetensors.
"""

BACKEND = "dataserver"


def register() -> None:
    """Makes the backend known to vLLM; may be called again, as vLLM does."""
    from vllm.distributed.weight_transfer import WeightTransferEngineFactory  # noqa: PLC0415

    if BACKEND not in WeightTransferEngineFactory._registry:
        WeightTransferEngineFactory.register_engine(
            BACKEND, "orchestrator.vllm_plugin.backend", "DataServerWeightTransfer"
        )
