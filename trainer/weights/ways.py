"""The three transports, by the configuration's word."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from dataserver.errors import InvalidConfigError
from trainer.launch import World
from trainer.weights.filesystem import FilesystemTransport
from trainer.weights.folders import DirectoryFolder, ObjectFolder, SyncFolder
from trainer.weights.gloo import GlooTransport
from trainer.weights.nccl import NcclTransport, vllm_trainer_init
from trainer.weights.outgoing import Outgoing
from trainer.weights.sync import Sync
from trainer.weights.transport import Transport
from trainer.weights_config import TransportKind, WeightsConfig

# What a storage takes in one request, as weights are written.
# https://docs.aws.amazon.com/AmazonS3/latest/userguide/upload-objects.html
# https://learn.microsoft.com/en-us/rest/api/storageservices/put-blob
MOST_BYTES: Final = {"s3": 5 * 1024**3, "az": 5000 * 1024**2}


def transport_maker(config: WeightsConfig, world: World, outgoing: Outgoing) -> Callable[[Sync], Transport]:
    """Makes each sync's transport, as configured. Raises `InvalidConfigError` for what could never work here."""

    def make(sync: Sync) -> Transport:
        if config.transport is TransportKind.GLOO:
            return GlooTransport(sync, world, config)
        if config.directory is not None:
            return FilesystemTransport(sync, outgoing, world, _folder(config.directory, sync.run, config.send_s))
        return NcclTransport(world, config)

    if isinstance(config.directory, str):
        _refuse_too_large(config.directory, outgoing)
    if config.transport is TransportKind.NCCL and world.is_first:
        # Now, not after the first step that is stamped.
        vllm_trainer_init()
    return make


def _refuse_too_large(url: str, outgoing: Outgoing) -> None:
    limit = MOST_BYTES.get(url.partition("://")[0].lower())
    largest = max(outgoing.specs, key=lambda spec: spec.size, default=None)
    if limit is not None and largest is not None and largest.size >= limit:
        raise InvalidConfigError(
            f"weights.directory = {url!r}: {largest.name} has {largest.size:,} bytes, and this storage takes less than "
            f"{limit:,} in one request: send by a shared filesystem, gs://, gloo or nccl, or in a smaller dtype"
        )


def _folder(directory: Path | str, run: str, send_s: float) -> SyncFolder:
    if isinstance(directory, Path):
        return DirectoryFolder(directory, run)
    return ObjectFolder(directory, run, send_s=send_s)
