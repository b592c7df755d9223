"""Inner loops as machine code: `compiled` is Numba's compiler as this project uses it.

A compiled function takes arrays and numbers and calls only other compiled ones, and those of `instructions`. Its
indices are not checked at run time: whoever calls it has checked that what they point to is there. It holds no lock of
Python's, so that several threads run at once. Numba is imported at the first call, so that commands that compute
nothing do not wait for it.

The first call on a machine compiles a function for its types, a second or so each, and says so in the log. The result
is kept beside the source, or, where that is read-only, in the user's cache directory (`NUMBA_CACHE_DIR`); it is
compiled again when the file changes that the function is in, not when one does that it calls or has constants of.
"""

import functools
import logging
from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar

_Args = ParamSpec("_Args")
_Result = TypeVar("_Result")

log = logging.getLogger(__name__)


class compiled(Generic[_Args, _Result]):  # noqa: N801 - a decorator
    """The decorated function, compiled at its first call for the types that it is called with."""

    def __init__(self, function: Callable[_Args, _Result]) -> None:
        self._function = function
        self._machine_code: Callable[_Args, _Result] | None = None
        functools.update_wrapper(self, function)

    def __call__(self, *args: _Args.args, **kwargs: _Args.kwargs) -> _Result:
        """Compute it."""
        return (self._machine_code or self._prepared())(*args, **kwargs)

    @property
    def _numba_type_(self) -> object:
        """What Numba sees where another compiled function calls this one."""
        import numba  # noqa: PLC0415 - as said above

        found: object = numba.typeof(self._prepared())  # type: ignore[no-untyped-call]
        return found

    def _prepared(self) -> Callable[_Args, _Result]:
        if self._machine_code is None:
            self._machine_code = _compiler()(self._function)
        return self._machine_code


@functools.cache
def _compiler() -> Callable[[Callable[..., Any]], Any]:
    """What a function becomes machine code by."""
    import numba  # noqa: PLC0415 - as said above
    from numba.core import event  # noqa: PLC0415

    import dataserver.compiled.lowering  # noqa: F401, PLC0415 - which Numba learns the instructions by

    class Reporter(event.Listener):
        def on_start(self, happened: Any) -> None:  # noqa: ANN401
            function = happened.data["dispatcher"].py_func
            if "<locals>" not in function.__qualname__:
                log.info("compiling %s.%s, once on this machine", function.__module__, function.__qualname__)

        def on_end(self, _: object) -> None:
            """The next one says that this one is done."""

    event.register("numba:compile", Reporter())  # type: ignore[no-untyped-call]

    def compile_at_first_call(function: Callable[..., Any]) -> Any:  # noqa: ANN401
        try:
            return numba.njit(cache=True, nogil=True, error_model="numpy")(function)
        except RuntimeError as error:
            log.warning("%s is compiled anew by each process: %s. Set NUMBA_CACHE_DIR.", function.__qualname__, error)
            return numba.njit(nogil=True, error_model="numpy")(function)

    return compile_at_first_call
