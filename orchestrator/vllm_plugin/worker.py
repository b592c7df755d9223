"""What the orchestrator asks a worker through vLLM's `/collective_rpc`, where arguments are plain strings."""

from dataclasses import asdict
from typing import Any

from orchestrator.vllm_plugin import register
from orchestrator.vllm_plugin.backend import DataServerWeightTransfer

# Also where the entry point is not seen, as when an older build's metadata lies in the working directory.
register()


class WorkerReports:
    """vLLM mixes this into its worker class (`--worker-extension-cls`)."""

    weight_transfer_engine: Any

    def transfer_report(self) -> dict[str, Any]:
        """Where this worker stands in a transfer: a `TransferReport`."""
        return asdict(self._dataserver_backend().report())

    def confirm_checksum(self, checksum: str) -> None:
        """Raises RuntimeError unless what this worker loaded has that checksum."""
        found = self._dataserver_backend().report().checksum
        if found != checksum:
            raise RuntimeError(f"this worker's weights have the checksum {found or 'of nothing'}, not {checksum}")

    def _dataserver_backend(self) -> DataServerWeightTransfer:
        engine = self.weight_transfer_engine
        if not isinstance(engine, DataServerWeightTransfer):
            raise TypeError("""start vLLM with --weight-transfer-config '{"backend": "dataserver"}'""")
        return engine
