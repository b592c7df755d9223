"""A process that may open no more files fails in many places and words; whoever asks is told the one cause."""

import errno
import os
import resource

from dataserver.errors import DataServerError, InternalError, InvalidConfigError, UnavailableError

# This process's limit, and the whole machine's.
_EXHAUSTED = (errno.EMFILE, errno.ENFILE)


def out_of_files(error: Exception) -> UnavailableError | None:
    """What to say instead of `error` where it comes of files that cannot be opened; else None."""
    own_words = isinstance(error, DataServerError) and not isinstance(error, InvalidConfigError | InternalError)
    if not _told(error) and (own_words or not _nothing_opens()):
        return None
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return UnavailableError(
        f"this server may not open more files: its limit of {limit} file descriptors is reached, connections among "
        "them. Start it with a higher one (`ulimit -n 65536`); whoever waits goes on by itself",
        limit=limit,
    )


def _told(error: BaseException | None) -> bool:
    """Whether `error`, or what led to it, says so itself."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _EXHAUSTED:
            return True
        error = error.__cause__ or error.__context__
    return False


def _nothing_opens() -> bool:
    """For libraries that do not pass the cause on: whether opening a file fails for that reason now."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return error.errno in _EXHAUSTED
    return False
