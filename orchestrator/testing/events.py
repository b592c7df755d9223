"""What happened in a fake engine: in memory, or in a file that outlives its process."""

import json
import threading
from pathlib import Path
from typing import Any


class Events:
    """Appends to `path` where there is one; a restarted engine goes on in the same list."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._kept: list[dict[str, Any]] = []

    def write(self, kind: str, **details: object) -> None:
        """Notes one."""
        event = {"kind": kind, **details}
        with self._lock:
            self._kept.append(event)
            if self._path is not None:
                with self._path.open("a") as file:
                    file.write(json.dumps(event) + "\n")

    def read(self, kind: str | None = None) -> list[dict[str, Any]]:
        """All so far, of one kind or of all."""
        with self._lock:
            events = list(self._kept) if self._path is None else read_events(self._path)
        return [event for event in events if kind is None or event["kind"] == kind]


def read_events(path: Path) -> list[dict[str, Any]]:
    """Those in a file; a line that a kill cut short is left out."""
    if not path.exists():
        return []
    found: list[dict[str, Any]] = []
    for line in path.read_text().splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found
