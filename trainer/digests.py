"""Digests of a checkpoint's shards: what a disk or a copy damaged is refused, and not trained on.

save   rank r ──xxh3──> what it wrote            all of them stand in the record, in the order of the ranks
load   rank r ──xxh3──> what ranks r, r + n, … wrote of those that saved, n being the ranks that load
"""

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import xxhash


def digest_of(directory: Path, writer: int) -> int:
    """XXH3-64, signed, of the files that rank `writer` wrote, in the order of their names. Raises `OSError`."""
    digest = xxhash.xxh3_64()
    for path in [*sorted(directory.glob(f"__{writer}_*")), *([] if writer else [directory / ".metadata"])]:
        with path.open("rb") as file:
            hashlib.file_digest(file, lambda: digest)
    return int.from_bytes(digest.digest(), "big", signed=True)


def damaged(directory: Path, digests: Sequence[int], writers: Iterable[int]) -> list[int]:
    """Those of the `writers` whose files are not what `digests` says they wrote, or cannot be read."""
    return [writer for writer in writers if not _is_whole(directory, digests[writer], writer)]


def damage(path: Path, writer: int) -> str:
    """What is wrong with a checkpoint, in words."""
    return (
        f"the checkpoint {path} is damaged: the files __{writer}_* that rank {writer} wrote"
        f"{'' if writer else ', or .metadata,'} are not what they were, or cannot be read; "
        "restore them from a copy, or --resume from another checkpoint"
    )


def _is_whole(directory: Path, digest: int, writer: int) -> bool:
    try:
        return digest_of(directory, writer) == digest
    except OSError:
        return False
