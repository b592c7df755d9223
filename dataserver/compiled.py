"""Inner loops as machine code: `compiled` is Numba's compiler as this project uses it.

A compiled function takes arrays and numbers and calls only other compiled ones. Its indices are not checked at run
time: whoever calls it has checked that what they point to is there. It holds no lock of Python's, so that several
threads run at once. The first call on a machine compiles it, a second or so each, and Numba keeps the result beside
the source, or, where that is read-only, in the user's cache directory (`NUMBA_CACHE_DIR`).
"""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from numba import njit

_Args = ParamSpec("_Args")
_Result = TypeVar("_Result")


def compiled(function: Callable[_Args, _Result]) -> Callable[_Args, _Result]:
    """`function`, compiled at its first call for the types that it is called with."""
    compile_at_first_call: Callable[[Callable[_Args, _Result]], Callable[_Args, _Result]] = njit(
        cache=True, nogil=True, error_model="numpy"
    )
    return compile_at_first_call(function)
