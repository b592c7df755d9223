"""How a long pass tells how far it is."""

from collections.abc import Callable

ReportBytes = Callable[[int, int], None]
"""Called with bytes done and bytes in all."""


class ByteCounter:
    """Adds up bytes that are done, and reports them."""

    def __init__(self, total: int, report: ReportBytes) -> None:
        self._total = total
        self._report = report
        self._done = 0

    def add(self, count: int) -> None:
        """Report `count` more bytes as done."""
        self._done += count
        self._report(self._done, self._total)


def report_nothing(done_bytes: int, total_bytes: int) -> None:
    """Tell nobody."""
