"""Whether a database's file is still the one that was opened.

SQLite holds the file itself: after its path was removed, or leads to another file, this process
would go on writing where nobody looks, beside any process that starts later.
"""

from pathlib import Path

from dataserver.errors import PreconditionError, UnavailableError


class SameFile:
    """The file at `path`, which holds `what`, as it is now; raises `OSError` where there is none."""

    def __init__(self, path: Path, what: str) -> None:
        self._path = path
        self._name = f"{what} {path}"
        self._opened = _identity(path)

    def check(self) -> None:
        """Raise `PreconditionError` when another file, or none, is at the path. Takes microseconds."""
        try:
            found = _identity(self._path)
        except (FileNotFoundError, NotADirectoryError):
            found = None
        except OSError as error:
            raise UnavailableError(f"{self._name}: cannot look at it: {error.strerror}") from error
        if found != self._opened:
            what = "removed" if found is None else "replaced by another"
            raise PreconditionError(
                f"{self._name}: the file was {what} while it was open here; nothing more is written. "
                "Move the file that was open back to its place, or restart this process on the one that is to count"
            )


def _identity(path: Path) -> tuple[int, int]:
    """Device and inode."""
    status = path.stat()
    return status.st_dev, status.st_ino
