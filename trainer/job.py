"""From a configuration to a running job: process group, data server, training, and the end."""

from collections.abc import Mapping

import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

from trainer.checkpoint import Resume
from trainer.config import TrainerConfig
from trainer.data import Endpoint, ServerFeed
from trainer.launch import end_with_launcher, join_world, start_collectives, tell_threads
from trainer.train import train


@record
def run_job(
    config: TrainerConfig, addresses: str, environment: Mapping[str, str], *, resume: Resume, take_over: bool
) -> None:
    """Train with the data servers at `addresses` until the run ends; torchrun learns why it did not."""
    world = join_world(config.parallel.device, environment)
    end_with_launcher(world)
    tell_threads(world)
    start_collectives(world, config.parallel.collective_timeout_s)
    feed = ServerFeed(Endpoint(addresses=addresses, config=config.data), config.run)
    try:
        train(config, world, feed, resume=resume, take_over=take_over)
    finally:
        feed.close()
    dist.destroy_process_group()
