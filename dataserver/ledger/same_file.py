"""Whether a ledger's file is still the one that was opened.

SQLite holds the file itself: after its path was removed, or leads to another file, this process
would go on writing where nobody looks, beside any server that starts later.
"""

from pathlib import Path

from dataserver.errors import PreconditionError, UnavailableError


class SameFile:
    """The file at `path`, as it is now; raises `OSError` where there is none."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._opened = _identity(path)

    def check(self) -> None:
        """Raise `PreconditionError` when another file, or none, is at the path. Takes microseconds."""
        try:
            found = _identity(self._path)
        except (FileNotFoundError, NotADirectoryError):
            found = None
        except OSError as error:
            raise UnavailableError(f"ledger {self._path}: cannot look at it: {error.strerror}") from error
        if found != self._opened:
            what = "removed" if found is None else "replaced by another"
            raise PreconditionError(
                f"ledger {self._path}: the file was {what} while this server had it open; nothing more is written. "
                "Move the file that was open back to its place, or restart the server on the one that is to count"
            )


def _identity(path: Path) -> tuple[int, int]:
    """Device and inode."""
    status = path.stat()
    return status.st_dev, status.st_ino
