"""What fails for want of file descriptors is told as that, however it was put."""

import errno

from dataserver.errors import InternalError, InvalidConfigError, RunNotFoundError, UnavailableError
from dataserver.hosting.open_files import out_of_files


def raised(cause: Exception, error: Exception) -> Exception:
    try:
        raise error from cause
    except type(error) as raised_error:
        return raised_error


def test_the_cause_is_found_behind_what_it_led_to() -> None:
    for number in (errno.EMFILE, errno.ENFILE):
        cause = OSError(number, "Too many open files", "/data/index")
        for error in (cause, raised(cause, InvalidConfigError("cannot be written")), raised(cause, InternalError("?"))):
            told = out_of_files(error)
            assert isinstance(told, UnavailableError)
            assert "ulimit -n" in told.message


def test_other_faults_stay_what_they_are() -> None:
    for error in (
        RunNotFoundError("no such run"),
        InternalError("?"),
        ValueError("?"),
        raised(OSError(errno.ENOSPC, "No space left on device"), InvalidConfigError("cannot be written")),
    ):
        assert out_of_files(error) is None
