"""How a benchmark tells what it saw: a table for people, JSON for programs."""

import json
import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True, slots=True)
class Spread:
    """Minimum, median and maximum of repeated measurements."""

    low: float
    median: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        return cls(min(values), statistics.median(values), max(values))

    def __str__(self) -> str:
        return f"{self.median:.3g} ({self.low:.3g}-{self.high:.3g})"


def report(name: str, title: str, rows: Sequence[dict[str, object]], notes: Sequence[str] = ()) -> None:
    """Print `rows` (equal keys) as a table and write them to benchmarks/results/<name>.json."""
    table = Table(title=title, title_justify="left")
    for column in rows[0]:
        table.add_column(column, justify="left" if isinstance(rows[0][column], str) else "right")
    for row in rows:
        table.add_row(*(_cell(value) for value in row.values()))
    console = Console(width=140)
    console.print(table)
    for note in notes:
        console.print(note)
    RESULTS.mkdir(exist_ok=True)
    machine = {"python": platform.python_version(), "cpus": os.cpu_count(), "machine": platform.machine()}
    record = {"name": name, "title": title, "machine": machine, "rows": rows, "notes": list(notes)}
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(record, indent=2, default=_jsonable) + "\n")
    console.print(f"[dim]written to {path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}[/dim]")


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _jsonable(value: object) -> object:
    if isinstance(value, Spread):
        return {"low": value.low, "median": value.median, "high": value.high}
    raise TypeError(type(value).__name__)
