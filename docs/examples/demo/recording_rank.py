"""A rank of the demo's trainer: the trainer as it is, fed by a feed that also keeps records.

torchrun ... recording_rank.py CONFIG.toml HOST:PORT RECORDS
"""

import os
import sys
from pathlib import Path

import torch.distributed as dist
from recording import RecordingFeed

from trainer.cli import end_rank
from trainer.config_file import load_config
from trainer.data import Endpoint
from trainer.launch import join_world, start_collectives
from trainer.train import train


def main(config_file: Path, endpoint: str, records: Path) -> None:
    """Train until the run ends, going on from the newest checkpoint if there is one."""
    config = load_config(config_file)
    world = join_world(config.parallel.device, os.environ)
    start_collectives(world, config.parallel.collective_timeout_s)
    feed = RecordingFeed(Endpoint(addresses=endpoint, config=config.data), config.run, records)
    try:
        train(config, world, feed, resume="auto")
    finally:
        feed.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
    end_rank(0)
