"""Zygotes for a test session, and the way to have scenarios run by them, several at a time."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Self

AT_A_TIME = 2


class Zygote:
    """One zygote; for one caller at a time."""

    def __init__(self, module: str, paths: Sequence[Path]) -> None:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths)), "OPENBLAS_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
        )  # fmt: skip

    def run(self, scenario: str, arguments: dict[str, Any], directory: Path) -> list[str]:
        order = {"scenario": scenario, "arguments": arguments, "directory": str(directory)}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait(timeout=60)
        self._process.stdout.close()


class Pool:
    """Runs scenarios of a module, each in a fresh directory, that is kept when there are complaints.

    `paths`: where the module and what it imports lie.
    """

    def __init__(
        self, directory: Path, module: str = "crashlab.zygote", paths: Sequence[Path] = (Path(__file__).parent.parent,)
    ) -> None:
        self._directory = directory
        self._module = module
        self._paths = paths
        self._count = 0
        self._idle: SimpleQueue[Zygote] = SimpleQueue()

    def __enter__(self) -> Self:
        for _ in range(AT_A_TIME):
            self._idle.put(Zygote(self._module, self._paths))
        return self

    def __exit__(self, *_: object) -> None:
        for _ in range(AT_A_TIME):
            self._idle.get().close()

    def run(self, scenario: str, **arguments: Any) -> list[str]:
        """Complaints of one scenario; empty when all is well."""
        return self.run_all(scenario, [arguments])[0]

    def run_all(self, scenario: str, each: Sequence[dict[str, Any]]) -> list[list[str]]:
        """Complaints of the scenario with each of the arguments."""
        with ThreadPoolExecutor(AT_A_TIME) as threads:
            return list(threads.map(lambda item: self._run(scenario, *item), [(a, self._fresh()) for a in each]))

    def _fresh(self) -> Path:
        self._count += 1
        directory = self._directory / f"{self._count:04}"
        directory.mkdir()
        return directory

    def _run(self, scenario: str, arguments: dict[str, Any], directory: Path) -> list[str]:
        zygote = self._idle.get()
        try:
            complaints = zygote.run(scenario, arguments, directory)
        finally:
            self._idle.put(zygote)
        if complaints:
            return [f"{complaint} (see {directory})" for complaint in complaints]
        shutil.rmtree(directory)
        return []
