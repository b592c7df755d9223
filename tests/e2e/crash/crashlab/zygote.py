"""Runs scenarios, each in a forked process: `{"scenario", "arguments", "directory"}` in, complaints out.

Everything is imported, and what servers compile is loaded, before the first fork: they would do it anew, each for a
second. Nothing here starts gRPC, a server or a thread.
"""

import gc
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import sqlalchemy.dialects.sqlite  # noqa: F401  # a server imports these three when it needs them: once here, not per server

import dataserver.stores.parquet_file
import dataserver.stores.scan  # noqa: F401
from crashlab.random_story import random_story
from crashlab.scenarios import SCENARIOS
from dataserver.stores.decoded import prepare_decoded
from dataserver.stores.destination import Destination

Scenarios = Mapping[str, Callable[..., list[str]]]

SCENARIO_LIMIT_S = 200


def run_forked(scenarios: Scenarios, scenario: str, arguments: dict[str, object], directory: Path) -> list[str]:
    """Run one scenario in a process group of its own, which is ended with it."""
    result = directory / "complaints.json"
    pid = os.fork()
    if pid == 0:
        os.setsid()
        signal.alarm(SCENARIO_LIMIT_S)
        try:
            complaints = scenarios[scenario](directory, **arguments)
        except Exception:  # noqa: BLE001  # a scenario that fails is a complaint
            complaints = [traceback.format_exc()]
        result.write_text(json.dumps(complaints))
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    if status == 0:
        return json.loads(result.read_text())
    logs = "\n".join(f"--- {log.name}\n{log.read_text()[-800:]}" for log in sorted(directory.glob("*.log")))
    return [f"{scenario} ended with {os.waitstatus_to_exitcode(status)} (limit {SCENARIO_LIMIT_S} s)\n{logs}"]


def warm_up() -> None:
    """Have what servers compile loaded, and what pyarrow imports at the first array."""
    none = np.zeros(0, dtype=np.int64)
    for token_bytes in (2, 4):
        prepare_decoded(token_bytes, Destination.end_to_end(none, token_bytes=token_bytes, mask=True, weights=False))
    pa.array([0])


def main(scenarios: Scenarios) -> None:
    """Run what stdin says, to its end."""
    warm_up()
    gc.freeze()  # what is imported stays shared with all that are forked
    for line in sys.stdin:
        order = json.loads(line)
        complaints = run_forked(scenarios, order["scenario"], order["arguments"], Path(order["directory"]))
        print(json.dumps(complaints), flush=True)


if __name__ == "__main__":
    main(SCENARIOS | {"random_story": random_story})
