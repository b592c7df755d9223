"""What can never be sent is refused before the first step."""

import pytest
import torch

from dataserver.errors import InvalidConfigError
from dataserver.weight_buckets import TensorSpec
from trainer.launch import World
from trainer.weights.outgoing import Outgoing
from trainer.weights.ways import transport_maker
from trainer.weights_config import WeightsConfig

WORLD = World(rank=0, size=1, local_rank=0, device=torch.device("cpu"), holder="test", under_torchrun=False)


@pytest.mark.parametrize(("url", "refused"), [("s3://b/w", True), ("az://b/w", True), ("gs://b/w", False)])
def test_a_weight_that_no_request_to_the_storage_can_hold_is_refused(url: str, refused: bool) -> None:
    spec = TensorSpec(name="model.embed_tokens.weight", dtype="float32", shape=(5 * 1024, 256 * 1024))
    sent = Outgoing(specs=(spec,), weights=(), dtype=torch.float32, buckets=(range(1),))
    config = WeightsConfig(transport="filesystem", directory=url)
    if not refused:
        transport_maker(config, WORLD, sent)
        return
    with pytest.raises(InvalidConfigError, match=r"model\.embed_tokens\.weight has 5,368,709,120 bytes"):
        transport_maker(config, WORLD, sent)
