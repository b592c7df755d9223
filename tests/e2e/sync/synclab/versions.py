"""Weights as bytes: what a version holds follows from the samples in it, so that a torn version shows."""

import json
import struct
from collections.abc import Iterable
from pathlib import Path

import xxhash
from crashlab.weights import Consumed

from dataserver.weight_buckets import TensorSpec

TENSORS = (
    TensorSpec(name="embed", dtype="float32", shape=(16, 4)),
    TensorSpec(name="layer", dtype="float32", shape=(8,)),
    TensorSpec(name="norm", dtype="float32", shape=(3,)),
)
# Each is a bucket of its own.
BUCKET_BYTES = 1


def weights_of(consumed: Iterable[Consumed]) -> dict[str, bytes]:
    """The bytes of each weight of a model that consumed these samples."""
    seed = xxhash.xxh3_64_intdigest(json.dumps(sorted(consumed)).encode())
    return {tensor.name: _expand(seed + place, size_of(tensor)) for place, tensor in enumerate(TENSORS)}


def size_of(tensor: TensorSpec) -> int:
    """Bytes."""
    count = 4
    for length in tensor.shape:
        count *= length
    return count


def checksum_of(weights: dict[str, bytes]) -> str:
    """As the contract has it."""
    digests = b"".join(xxhash.xxh3_128_digest(weights[tensor.name]) for tensor in TENSORS)
    return xxhash.xxh3_128_hexdigest(digests)


def safetensors(tensor: TensorSpec, data: bytes) -> bytes:
    """A file that holds one weight. https://github.com/huggingface/safetensors#format"""
    entry = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [0, len(data)]}
    header = json.dumps({tensor.name: entry}).encode()
    return struct.pack("<Q", len(header)) + header + data


class VersionBook:
    """Which checksum each version has, by its label; written by trainers before they hand anything over."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def note(self, label: str, checksum: str) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps([label, checksum]) + "\n")

    def read(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for line in self._path.read_text().splitlines() if self._path.exists() else ():
            label, checksum = json.loads(line)
            found.setdefault(label, set()).add(checksum)
        return found


def _expand(seed: int, size: int) -> bytes:
    blocks = (xxhash.xxh3_128_digest(b"", seed=(seed + number) % 2**64) for number in range(-(-size // 16)))
    return b"".join(blocks)[:size]


def note_misnomer(directory: Path, refusal: str) -> None:
    """Remember that a report was refused though its version's number survives, made by another attempt."""
    with (directory / "misnomers.txt").open("a") as file:
        file.write(refusal + "\n")


def misnomers_in(directory: Path) -> list[str]:
    """All that was noted."""
    path = directory / "misnomers.txt"
    return path.read_text().splitlines() if path.exists() else []
