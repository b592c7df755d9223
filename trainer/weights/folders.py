"""Where the files of a run's syncs lie: a directory that trainer and engines share, or objects below a URL.

    ROOT/RUN/SYNC/FILE      a file appears under its name when it is whole

Of object storages nothing has to be made before it is written, and what was written is seen by all
at once: S3, Google's and Azure's promise as much.
"""

import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from dataserver.durable import flush_to_disk, write_durably
from dataserver.storage import ReadPolicy, WritableStorage, open_writable
from trainer.weights_config import STORAGE_S


class SyncFolder(Protocol):
    """The syncs of one run, each with files of its own."""

    def address(self, sync: str) -> str:
        """By what engines find the files of a sync."""

    def make(self, sync: str) -> None:
        """Before the first file of a sync."""

    def syncs(self) -> list[str]:
        """Names of all that is there."""

    def sees(self, sync: str) -> bool:
        """Whether this rank can write into what another one made."""

    def write(self, sync: str, file: str, parts: Sequence[bytes | memoryview]) -> None:
        """A file of `parts`, one after another."""

    def settle(self, sync: str) -> None:
        """Return when the names of all files so far will outlast a crash."""

    def remove(self, sync: str) -> None:
        """Delete a sync and all its files; none is no fault."""


class DirectoryFolder:
    """Directories below `root`. Raises `OSError`."""

    def __init__(self, root: Path, run: str) -> None:
        self._of_run = root.absolute() / run

    def address(self, sync: str) -> str:
        """See `SyncFolder`."""
        return str(self._of_run / sync)

    def make(self, sync: str) -> None:
        """See `SyncFolder`."""
        (self._of_run / sync).mkdir(parents=True)

    def syncs(self) -> list[str]:
        """See `SyncFolder`."""
        return [path.name for path in self._of_run.iterdir()]

    def sees(self, sync: str) -> bool:
        """See `SyncFolder`."""
        return (self._of_run / sync).is_dir()

    def write(self, sync: str, file: str, parts: Sequence[bytes | memoryview]) -> None:
        """See `SyncFolder`."""
        write_durably(self._of_run / sync / file, *parts)

    def settle(self, sync: str) -> None:
        """See `SyncFolder`."""
        flush_to_disk(self._of_run / sync)

    def remove(self, sync: str) -> None:
        """See `SyncFolder`."""
        with suppress(FileNotFoundError):
            shutil.rmtree(self._of_run / sync)


class ObjectFolder:
    """Objects below `url`. `send_s`: how long writing one may take. Raises `DataServerError`."""

    def __init__(self, url: str, run: str, *, send_s: float) -> None:
        self._url = f"{url.rstrip('/')}/{run}"
        self._storage = _storage(self._url, STORAGE_S)
        self._written = _storage(self._url, send_s)

    def address(self, sync: str) -> str:
        """See `SyncFolder`."""
        return f"{self._url}/{sync}"

    def make(self, sync: str) -> None:
        """Nothing."""

    def syncs(self) -> list[str]:
        """See `SyncFolder`."""
        return sorted({info.path.partition("/")[0] for info in self._storage.list()})

    def sees(self, sync: str) -> bool:  # noqa: ARG002 - who cannot write there hears so when it writes
        """All ranks do."""
        return True

    def write(self, sync: str, file: str, parts: Sequence[bytes | memoryview]) -> None:
        """See `SyncFolder`. Holds the file once more meanwhile."""
        self._written.put(f"{sync}/{file}", b"".join(parts))

    def settle(self, sync: str) -> None:
        """Nothing."""

    def remove(self, sync: str) -> None:
        """See `SyncFolder`."""
        storage = _storage(f"{self._url}/{sync}", STORAGE_S)
        storage.delete([info.path for info in storage.list()])


def _storage(url: str, limit_s: float) -> WritableStorage:
    return open_writable(url, policy=ReadPolicy(deadline_s=limit_s))
