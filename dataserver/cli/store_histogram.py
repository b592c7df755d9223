"""How long the rows of a store are: bars in the terminal, and as a picture."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from dataserver.wire.store_info import StoreInfo

_WIDTH: Final = 48
# A bar's last character shows eighths.
_EIGHTHS: Final = " ▏▎▍▌▋▊▉"


def histogram_lines(store: "StoreInfo") -> Iterator[str]:
    """A line for each range of lengths."""
    highest = max((bucket.rows for bucket in store.length_histogram), default=1)
    yield "tokens per row           rows"
    for bucket in store.length_histogram:
        span = f"{bucket.begin:,} .. {bucket.end - 1:,}"
        yield f"{span:>17} {bucket.rows:>11,}  {_bar(bucket.rows, highest)}".rstrip()


def draw_histogram(store: "StoreInfo", path: Path) -> None:
    """Write the picture as PNG, the longest sample that is served as a line in it.

    Raises `InvalidConfigError` without matplotlib or where nothing can be written.
    """
    from dataserver.cli.pictures import new_figure, save_png

    figure = new_figure(9, 5)
    axes = figure.subplots()
    buckets = store.length_histogram
    # A row without tokens is drawn where a row of half a token would be.
    lefts = [max(bucket.begin, 0.5) for bucket in buckets]
    widths = [bucket.end - left for bucket, left in zip(buckets, lefts, strict=True)]
    axes.bar(lefts, [bucket.rows for bucket in buckets], widths, align="edge", color="#4878a8", edgecolor="white")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}" if value >= 1 else "0")
    axes.set_xlabel("tokens per row")
    axes.set_ylabel("rows")
    if store.max_length < store.longest_row:
        axes.axvline(store.max_length, color="#c04040", linewidth=1)
        axes.annotate(f" max_length {store.max_length:,}", (store.max_length, 0.98), xycoords=("data", "axes fraction"),
                      va="top", color="#c04040")  # fmt: skip
    figure.suptitle(f"{store.rows:,} rows, {store.tokens:,} tokens, longest row {store.longest_row:,}")
    save_png(figure, path)


def _bar(rows: int, highest: int) -> str:
    """At least a sliver for any row at all."""
    eighths = -(-rows * _WIDTH * 8 // highest)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()
