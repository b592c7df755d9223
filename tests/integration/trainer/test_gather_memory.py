"""Gathering holds a few buckets besides the shards, never the model."""

from pathlib import Path
from typing import Any

import pytest
from trainerlab.jobs import job_config, tiny_model
from trainerlab.ranks import on_ranks

from trainer.config import TrainerConfig
from trainer.launch import World

MIB = 2**20
BUCKET = 2 * MIB


def peak_of_a_transfer(world: World, config: TrainerConfig) -> tuple[int, int]:
    """Bytes that are sent, and by how much this rank's memory rises meanwhile at its highest."""
    import torch

    from trainer.train import build
    from trainer.weights.gather import Bucket, gather
    from trainer.weights.outgoing import outgoing
    from trainer.weights.sender import Sender

    class Nowhere:
        device = torch.device("cpu")

        def join(self, group_size: int, deadline_s: float) -> None:
            """Nobody is there."""

        def send(self, bucket: Bucket) -> None:
            Path("/dev/null").write_bytes(bucket.data.numpy().data)

    assert config.weights is not None
    model, _ = build(config, world, None)
    sent = outgoing(model, config.weights, config.model.dtype)

    def transfer() -> None:
        transport: Any = Nowhere()
        sender = Sender(transport, group_size=1, deadline_s=600)
        for bucket in gather(sent, wanted=lambda _: True, device=transport.device):
            sender.put(bucket)
        assert len(sender.drain()) == len(sent.specs)

    transfer()  # whatever torch and the allocator take once
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark begins anew (proc(5))
    before = memory("VmRSS")
    transfer()
    return sent.size, memory("VmHWM") - before


def memory(field: str) -> int:
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(f"{field}:")]
    return int(line.split()[1]) * 1024


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2])
def test_the_peak_is_a_few_buckets(tmp_path: Path, ranks: int) -> None:
    model = tiny_model() | {"hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 16}
    config = job_config(
        tmp_path, model={"config": model}, weights={"transport": "gloo", "dtype": "bf16", "bucket_bytes": BUCKET}
    )
    for size, peak in on_ranks(ranks, peak_of_a_transfer, config):
        assert size > 20 * BUCKET
        # Three buckets, the weight that is being gathered, its shard in the serving type, and what malloc keeps.
        assert peak < 8 * BUCKET, f"{peak / MIB:.1f} MiB for {size / MIB:.1f} MiB"
        print(f"{ranks} ranks: {peak / MIB:.1f} MiB above the shards to send {size / MIB:.1f} MiB")
