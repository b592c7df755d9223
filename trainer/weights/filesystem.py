"""Weights through files or objects that trainer and engines share; all ranks write side by side.

    DIRECTORY/RUN/ATTEMPT.NUMBER-SYNC_ID/00000.safetensors     bucket 0, by rank 0
                                         00001.safetensors     bucket 1, by rank 1 …
                                         weights.json          last: then everything is there

ATTEMPT is the sender's. What has a name is whole; `folders` has where it lies.
"""

import json
import logging
import re
from collections.abc import Sequence
from typing import Any, Final

import torch

from dataserver.errors import DataServerError
from dataserver.weight_buckets import TensorSpec
from trainer.launch import World
from trainer.weights.folders import SyncFolder
from trainer.weights.gather import Bucket
from trainer.weights.outgoing import Outgoing
from trainer.weights.sync import Meeting, Sync, TransferError

MARKER: Final = "weights.json"
FORMAT: Final = 1
OF_SYNC: Final = re.compile(r"(\d+)\.\d+-[0-9a-f]{32}")
# As safetensors call them. https://github.com/huggingface/safetensors#format
SAFETENSORS_TYPE: Final = {"float32": "F32", "bfloat16": "BF16", "float16": "F16"}

log = logging.getLogger(__name__)


class FilesystemTransport:
    """One sync's files, in the folder of its run."""

    def __init__(self, sync: Sync, outgoing: Outgoing, world: World, folder: SyncFolder) -> None:
        self._sync = sync
        self._outgoing = outgoing
        self._world = world
        self._folder = folder
        self._name = f"{sync.attempt}.{sync.version.number}-{sync.sync_id}"

    @property
    def device(self) -> torch.device:
        """Files are written from the CPU's memory."""
        return torch.device("cpu")

    def carries(self, bucket: int) -> bool:
        """Buckets go round the ranks."""
        return bucket % self._world.size == self._world.rank

    def meet(self) -> Meeting:
        """Make room; what other syncs left behind goes, as they are over.

        Those of a later attempt are not: whoever was displaced may not know yet.
        """
        self._folder.make(self._name)
        self._remove([other for other in self._folder.syncs() if self._is_over(other)])
        return Meeting(directory=self._folder.address(self._name))

    def join(self, group_size: int, deadline_s: float) -> None:  # noqa: ARG002 - files need no group
        """Raise `TransferError` when this rank does not see what rank 0 made."""
        if not self._folder.sees(self._name):
            raise TransferError(
                f"rank {self._world.rank} does not see {self._folder.address(self._name)}: weights.directory must lie "
                "on a filesystem that all nodes share"
            )

    def send(self, bucket: Bucket) -> None:
        """Write the bucket's file."""
        header = safetensors_header(bucket.specs)
        data: memoryview = bucket.data.numpy().data
        self._folder.write(self._name, _file_name(bucket.number), (header, data))

    def complete(self, checksum: str) -> None:
        """Write the marker: what there is, and where."""
        text = json.dumps(self._marker(checksum)).encode()
        self._folder.mark(self._name, MARKER, text)

    def leave(self) -> None:
        """Rank 0 deletes the files."""
        if self._world.is_first:
            self._remove([self._name])

    def _is_over(self, other: str) -> bool:
        of_sync = OF_SYNC.fullmatch(other)
        return of_sync is not None and int(of_sync[1]) <= self._sync.attempt and other != self._name

    def _remove(self, names: Sequence[str]) -> None:
        """Delete syncs' files; the next sync tries again what cannot be deleted now."""
        try:
            self._folder.remove(names)
        except (OSError, DataServerError) as error:
            log.warning("cannot delete %s: %s", ", ".join(map(self._folder.address, names)), error)

    def _marker(self, checksum: str) -> dict[str, Any]:
        tensors = [
            {"name": spec.name, "dtype": spec.dtype, "shape": list(spec.shape), "file": _file_name(number)}
            for number, bucket in enumerate(self._outgoing.buckets)
            for spec in (self._outgoing.specs[index] for index in bucket)
        ]
        return {
            "format": FORMAT,
            "run": self._sync.run,
            "sync_id": self._sync.sync_id,
            "version": {"attempt": self._sync.version.attempt, "number": self._sync.version.number},
            "tensors": tensors,
            "checksum": checksum,
        }


def safetensors_header(specs: Sequence[TensorSpec]) -> bytes:
    """What stands before the bytes of `specs` in a safetensors file."""
    fields, begin = {}, 0
    for spec in specs:
        offsets = [begin, begin + spec.size]
        fields[spec.name] = {
            "dtype": SAFETENSORS_TYPE[spec.dtype],
            "shape": list(spec.shape),
            "data_offsets": offsets,
        }
        begin += spec.size
    text = json.dumps(fields).encode()
    # The data begins at a multiple of 8, for readers that map the file.
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _file_name(bucket: int) -> str:
    return f"{bucket:05}.safetensors"
