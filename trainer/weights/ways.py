"""The three transports, by the configuration's word."""

from collections.abc import Callable
from pathlib import Path

from trainer.launch import World
from trainer.weights.filesystem import FilesystemTransport
from trainer.weights.folders import DirectoryFolder, ObjectFolder, SyncFolder
from trainer.weights.gloo import GlooTransport
from trainer.weights.nccl import NcclTransport, vllm_trainer_init
from trainer.weights.outgoing import Outgoing
from trainer.weights.sync import Sync
from trainer.weights.transport import Transport
from trainer.weights_config import TransportKind, WeightsConfig


def transport_maker(config: WeightsConfig, world: World, outgoing: Outgoing) -> Callable[[Sync], Transport]:
    """Makes each sync's transport, as configured. Raises `InvalidConfigError` for what could never work here."""

    def make(sync: Sync) -> Transport:
        if config.transport is TransportKind.GLOO:
            return GlooTransport(sync, world, config)
        if config.directory is not None:
            return FilesystemTransport(sync, outgoing, world, _folder(config.directory, sync.run, config.send_s))
        return NcclTransport(world, config)

    if config.transport is TransportKind.NCCL and world.is_first:
        # Now, not after the first step that is stamped.
        vllm_trainer_init()
    return make


def _folder(directory: Path | str, run: str, send_s: float) -> SyncFolder:
    if isinstance(directory, Path):
        return DirectoryFolder(directory, run)
    return ObjectFolder(directory, run, send_s=send_s)
