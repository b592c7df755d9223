"""Weights in a directory that trainer and engines share, or below the URL of an object storage.

    {directory}/00000.safetensors   bucket 0, whole as soon as it has its name
    {directory}/00001.safetensors   ...
    {directory}/weights.json        written last, when all ranks wrote all

Nothing is read before the marker is there: whoever reads has stopped serving, and a trainer may die while it writes.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, deserialize

from dataserver.errors import DataServerError, StoreNotFoundError
from dataserver.storage import ObjectInfo, ReadPolicy, Storage, is_url, open_storage
from dataserver.weight_buckets import Buffer, TensorSpec, pack
from orchestrator.engines.interface import Transfer
from orchestrator.receivers.bucket import Bucket, Deadline, ReceiveError

MARKER = "weights.json"
# How often to look for the next file: shared file systems tell nobody when one appears.
POLL_S = 0.02
# The same of an object storage, where looking is a request.
POLL_OBJECT_S = 0.2

_DTYPES = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}


def why_unreadable(directory: str) -> str:
    """Why such a directory could not be read here whatever is in it; empty if it could. Asks nobody."""
    try:
        if is_url(directory):
            open_storage(directory)
    except DataServerError as error:
        return str(error)
    return ""


def receive_files(transfer: Transfer, deadline: Deadline) -> Iterator[Bucket]:
    """The buckets, in order; raises `ReceiveError`."""
    read = _read_object if is_url(transfer.directory) else _read_file
    read(transfer.directory, MARKER, deadline)
    for number, tensors in enumerate(pack(transfer.tensors, transfer.bucket_bytes)):
        name = f"{number:05}.safetensors"
        yield _parse(f"{transfer.directory}/{name}", read(transfer.directory, name, deadline), tensors)


def _read_object(url: str, name: str, deadline: Deadline) -> bytes:
    awaited = f"{url}/{name}"
    try:
        storage = open_storage(url, policy=ReadPolicy(deadline_s=deadline.left_s(awaited)))
        while (info := _look(storage, name)) is None:
            time.sleep(min(POLL_OBJECT_S, deadline.left_s(awaited)))
        # What is left now, for all its bytes: the wait took its part.
        left_s = deadline.left_s(awaited)
        policy = ReadPolicy(deadline_s=left_s, slowest_bytes=sys.maxsize, stall_s=min(ReadPolicy().stall_s, left_s))
        return open_storage(url, policy=policy).read(info, 0, info.size)
    except DataServerError as error:
        raise ReceiveError(str(error)) from error


def _look(storage: Storage, name: str) -> ObjectInfo | None:
    with suppress(StoreNotFoundError):
        return storage.stat(name)
    return None


def _read_file(directory: str, name: str, deadline: Deadline) -> bytes:
    path = Path(directory) / name
    # Each of them, as a shared file system may show one name before another.
    _wait_for(path, deadline)
    try:
        return path.read_bytes()
    except OSError as error:
        raise ReceiveError(f"{path} cannot be read: {error}") from error


def _wait_for(path: Path, deadline: Deadline) -> None:
    # The trainer removes the directory of a transfer that it gave up.
    begun = path.parent.exists()
    while not path.exists():
        begun = begun or path.parent.exists()
        if begun and not path.parent.exists():
            raise ReceiveError(f"{path.parent} was removed before {path.name} was in it: the trainer gave up")
        time.sleep(min(POLL_S, deadline.left_s(str(path))))


def _parse(path: str, data: bytes, tensors: list[TensorSpec]) -> Bucket:
    try:
        found: dict[str, dict[str, Any]] = dict(deserialize(data))
    except SafetensorError as error:
        raise ReceiveError(f"{path} cannot be read: {error}") from error
    if found.keys() != {tensor.name for tensor in tensors}:
        wrong = sorted(found.keys() ^ {tensor.name for tensor in tensors})
        raise ReceiveError(f"{path} holds other weights than were announced: {', '.join(wrong[:8])}")
    return [(tensor, _bytes_of(path, tensor, found[tensor.name])) for tensor in tensors]


def _bytes_of(path: str, tensor: TensorSpec, entry: dict[str, Any]) -> Buffer:
    dtype, shape = _DTYPES.get(entry["dtype"], entry["dtype"]), tuple(entry["shape"])
    if (dtype, shape) != (tensor.dtype, tensor.shape):
        announced = f"{tensor.dtype} {list(tensor.shape)}"
        raise ReceiveError(f"{path}: {tensor.name} is {dtype} {list(shape)}, announced was {announced}")
    data: bytearray = entry["data"]
    if len(data) != tensor.size:
        raise ReceiveError(f"{path}: {tensor.name} has {len(data)} bytes instead of {tensor.size}")
    return data
