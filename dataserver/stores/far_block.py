"""One block of a far-away file: which bytes make it."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from dataserver.stores.files import Bytes, Span

Fetched: TypeAlias = tuple[Span, Bytes]
"""A range, and the bytes that lie there."""

# A span may fetch this many times what is wanted, or this many bytes, before it is split: a GET costs some
# 30 ms, in which a network brings megabytes.
_SPREAD = 2
_SMALL_BYTES = 1 << 18


@dataclass(frozen=True, slots=True, kw_only=True)
class FarBlock:
    """`spans` cover the columns that are asked for."""

    spans: tuple[Span, ...]
    rows: int

    @property
    def begin(self) -> int:
        """First byte."""
        return min((begin for begin, _ in self.spans), default=0)

    @property
    def end(self) -> int:
        """Byte after the last."""
        return max((end for _, end in self.spans), default=0)


def spans_over(chunks: Iterable[Span]) -> tuple[Span, ...]:
    """What to fetch for `chunks`: one span, or one for each run of touching chunks if they lie far apart."""
    ordered = sorted(chunks)
    if not ordered:
        return ()
    runs = [ordered[0]]
    for begin, end in ordered[1:]:
        if begin <= runs[-1][1]:
            runs[-1] = (runs[-1][0], max(runs[-1][1], end))
        else:
            runs.append((begin, end))
    whole = (runs[0][0], runs[-1][1])
    wanted = sum(end - begin for begin, end in runs)
    return (whole,) if whole[1] - whole[0] <= max(_SPREAD * wanted, _SMALL_BYTES) else tuple(runs)
