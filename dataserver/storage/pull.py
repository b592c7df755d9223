"""Pulling a whole store: all of it under its name, or nothing, however often it was interrupted.

    pieces of 16 MiB, in order ──> several fetched at once ──> written in order, hashed on the way
                                                               └── last one: file synced, next file
    all files there ──> the directory gets its name

Files are written one after the other from their beginning, so an interrupted pull goes on at a byte.
"""

import json
import shutil
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Self

from dataserver.errors import InvalidConfigError, StoreRefusedError
from dataserver.storage.objects import ObjectInfo, Storage
from dataserver.storage.staging import RECORD, PulledFile, Staging, target_of

_PIECE_BYTES = 1 << 24
_IN_FLIGHT = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class PullReport:
    """What a pull came to: files and bytes of the store, and how many of the bytes were there before."""

    files: int
    size: int
    kept: int


def pull(
    storage: Storage,
    infos: list[ObjectInfo],
    directory: Path,
    progress: Callable[[int, int], None],
    digests: Mapping[str, str] | None = None,
) -> PullReport:
    """Bring `infos` to `directory`, which is not there yet, or holds exactly them already.

    `progress` is called with bytes that are there and bytes in all. `digests`: XXH3-128 of files by path,
    where they are known. What an earlier pull left is used. Raises what reading raises, `StoreRefusedError`
    for names that lead elsewhere, `StoreDamagedError` for other bytes than expected, and
    `InvalidConfigError` if the directory cannot be written or holds something else.
    """
    directory = directory.absolute()
    _check_names([target_of(info.path) for info in infos])
    size = sum(info.size for info in infos)
    if _is_there(directory, infos):
        return PullReport(files=len(infos), size=size, kept=size)
    staging = Staging(directory)
    try:
        kept = _fill(storage, infos, staging, progress, digests or {})
    except OSError as error:
        left = "Nothing was pulled: name a directory that can be made."
        if staging.root.is_dir():
            left = f"What was pulled is kept in '{staging.root}': pull again to go on."
        raise InvalidConfigError(f"Cannot write '{error.filename or directory}' ({error.strerror}). {left}") from error
    finally:
        staging.close()
    return PullReport(files=len(infos), size=size, kept=kept)


def _fill(
    storage: Storage,
    infos: list[ObjectInfo],
    staging: Staging,
    progress: Callable[[int, int], None],
    digests: Mapping[str, str],
) -> int:
    """Returns the bytes that were there."""
    size = sum(info.size for info in infos)
    done = staging.open(infos)
    missing = [info for info in infos if info.path not in done]
    kept = sum(file.size for file in done.values())
    begun = staging.begun(missing[0]) if missing else 0
    kept += begun
    at = kept
    _check_space(staging.root, size - kept)
    progress(at, size)
    with _Fetching(storage, missing, begun) as fetching:
        for info in missing:
            with staging.part(info) as part:
                for data in fetching.of(info):
                    part.write(data)
                    at += len(data)
                    progress(at, size)
                done[info.path] = staging.finish(part, digests.get(info.path))
    staging.publish(storage.url, [done[info.path] for info in infos])
    return kept


class _Fetching:
    """Pieces of `infos`, in order, several of them under way at once; the first object from byte `begin` on."""

    def __init__(self, storage: Storage, infos: list[ObjectInfo], begin: int) -> None:
        self._storage = storage
        self._pieces = _pieces(infos, begin)
        self._pool = ThreadPoolExecutor(_IN_FLIGHT, thread_name_prefix="pull")
        self._under_way: deque[tuple[ObjectInfo, Future[bytes]]] = deque()

    def __enter__(self) -> Self:
        for _ in range(_IN_FLIGHT):
            self._ask()
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def of(self, info: ObjectInfo) -> Iterator[bytes]:
        """What is still to come of `info`; its turn must have come."""
        while self._under_way and self._under_way[0][0] is info:
            data = self._under_way.popleft()[1].result()
            self._ask()
            yield data

    def _ask(self) -> None:
        for info, begin, end in islice(self._pieces, 1):
            self._under_way.append((info, self._pool.submit(self._storage.read, info, begin, end)))


def _pieces(infos: list[ObjectInfo], first_begin: int) -> Iterator[tuple[ObjectInfo, int, int]]:
    begin = first_begin
    for info in infos:
        for at in range(begin, info.size, _PIECE_BYTES):
            yield info, at, min(at + _PIECE_BYTES, info.size)
        begin = 0


def _check_names(paths: list[str]) -> None:
    files = set(paths)
    for path in paths:
        for parent in PurePosixPath(path).parents:
            if str(parent) in files:
                raise StoreRefusedError(f"The storage holds both an object '{parent}' and '{path}' below it.")


def _check_space(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise InvalidConfigError(f"{needed:,} bytes are still to come, and the disk of '{folder}' has {free:,} left.")


def _is_there(directory: Path, infos: list[ObjectInfo]) -> bool:
    """Whether the directory holds the store already; raises `InvalidConfigError` if it holds something else."""
    if not directory.exists() or (directory.is_dir() and not any(directory.iterdir())):
        if directory.is_mount():
            raise InvalidConfigError(f"'{directory}' is where a disk is mounted: pull into a directory below it.")
        return False
    try:
        record = json.loads((directory / RECORD).read_text(encoding="utf-8"))
        pulled = [PulledFile(**file) for file in record["files"]]
    except (OSError, ValueError, TypeError, KeyError):
        raise InvalidConfigError(
            f"'{directory}' is there and was not pulled: pull into a directory that is not there yet."
        ) from None
    was = {(file.path, file.size, file.version) for file in pulled}
    changed = sorted({path for path, *_ in was ^ {(info.path, info.size, info.version) for info in infos}})
    changed += [file.path for file in pulled if not _has_size(directory / file.path, file.size)]
    if changed:
        raise InvalidConfigError(
            f"'{directory}' was pulled before and is not what the storage holds now; '{changed[0]}' differs. A store "
            "never changes: pull into another directory, or remove this one."
        )
    return True


def _has_size(path: Path, size: int) -> bool:
    return path.is_file() and path.stat().st_size == size
