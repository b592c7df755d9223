"""Where the files of a run's syncs lie: a directory that trainer and engines share, or objects below a URL.

    ROOT/RUN/SYNC/FILE      a file appears under its name when it is whole

Of object storages nothing has to be made before it is written, and what was written is seen by all
at once: S3, Google's and Azure's promise as much.
"""

import shutil
from collections.abc import Sequence
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

    def mark(self, sync: str, file: str, data: bytes) -> None:
        """A small file, written when all others are there, which then outlasts a crash as they do."""

    def remove(self, syncs: Sequence[str]) -> None:
        """Delete syncs and all their files; none is no fault. Tries all before it raises."""


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

    def mark(self, sync: str, file: str, data: bytes) -> None:
        """See `SyncFolder`."""
        # The names of the other files must last before that of the marker.
        flush_to_disk(self._of_run / sync)
        self.write(sync, file, (data,))
        flush_to_disk(self._of_run / sync)

    def remove(self, syncs: Sequence[str]) -> None:
        """See `SyncFolder`."""
        faults = []
        for sync in syncs:
            try:
                shutil.rmtree(self._of_run / sync)
            except FileNotFoundError:
                continue
            except OSError as error:
                faults.append(str(error))
        if faults:
            raise OSError("; ".join(faults))


class ObjectFolder:
    """Objects below `url`. Raises `DataServerError`.

    `send_s`: how long it is tried to write one that holds weights; nobody waits longer than that for the writer.
    `syncs` and `remove` together take `STORAGE_S` at most, and so do `mark` and `remove`.
    """

    def __init__(self, url: str, run: str, *, send_s: float) -> None:
        self._url = f"{url.rstrip('/')}/{run}"
        self._asked = _storage(self._url, STORAGE_S / 4)
        self._swept = _storage(self._url, STORAGE_S / 2)
        # Silence is no stall here: nothing comes back before the whole object is there.
        self._written = open_writable(self._url, policy=ReadPolicy(deadline_s=send_s, stall_s=send_s))

    def address(self, sync: str) -> str:
        """See `SyncFolder`."""
        return f"{self._url}/{sync}"

    def make(self, sync: str) -> None:
        """Nothing."""

    def syncs(self) -> list[str]:
        """See `SyncFolder`."""
        return sorted({info.path.partition("/")[0] for info in self._asked.list()})

    def sees(self, sync: str) -> bool:  # noqa: ARG002 - who cannot write there hears so when it writes
        """All ranks do."""
        return True

    def write(self, sync: str, file: str, parts: Sequence[bytes | memoryview]) -> None:
        """See `SyncFolder`. Holds the file once more meanwhile."""
        self._written.put(f"{sync}/{file}", b"".join(parts))

    def mark(self, sync: str, file: str, data: bytes) -> None:
        """See `SyncFolder`."""
        self._asked.put(f"{sync}/{file}", data)

    def remove(self, syncs: Sequence[str]) -> None:
        """See `SyncFolder`."""
        over = set(syncs)
        if over:
            self._swept.delete([info.path for info in self._asked.list() if info.path.partition("/")[0] in over])


def _storage(url: str, limit_s: float) -> WritableStorage:
    """One whose calls return within `limit_s`: the last try may begin at the deadline, and take as long itself."""
    return open_writable(url, policy=ReadPolicy(deadline_s=limit_s / 2))
