"""Pictures by matplotlib, which is imported only where one is drawn."""

from pathlib import Path
from typing import TYPE_CHECKING

from dataserver.errors import InvalidConfigError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def new_figure(width_inches: float, height_inches: float) -> "Figure":
    """An empty picture that needs no display; raises `InvalidConfigError` without matplotlib."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InvalidConfigError("a picture needs matplotlib: pip install matplotlib") from error
    figure = Figure(figsize=(width_inches, height_inches), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save_png(figure: "Figure", path: Path) -> None:
    """Write the picture; raises `InvalidConfigError` where it cannot be written."""
    try:
        figure.savefig(path, format="png", dpi=120)
    except OSError as error:
        raise InvalidConfigError(f"cannot write the picture {path}: {error.strerror}") from error
