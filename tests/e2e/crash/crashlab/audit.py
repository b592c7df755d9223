"""What must hold at the end: every sample of every epoch once, and weights, ledger and plans tell one story."""

from collections import Counter
from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any

from crashlab.rank import RUN
from crashlab.weights import Checkpoints
from dataserver.client import DataClient, StepDescription
from dataserver.errors import VersionNotFoundError


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """What the server says: per step, from 1, the rows and where it ends; and where the run stands.

    None stands for a step that the ledger does not know.
    """

    rows: list[list[int] | None]
    ends: list[dict[str, Any] | None]
    committed: dict[str, Any]
    ended: bool

    def complaints(self, checkpoints: Checkpoints, store_rows: int, forgotten: Collection[int]) -> list[str]:
        """Empty when all is well. Steps that the ledger may not know are `forgotten`."""
        checkpoint = checkpoints.latest()
        if checkpoint is None:
            return ["there is no checkpoint"]
        by_step: dict[int, list[int]] = {}
        for step, row in checkpoint.consumed:
            by_step.setdefault(step, []).append(row)
        complaints = []
        if asdict(checkpoint.cursor) | {"source_positions": []} != self.committed | {"source_positions": []}:
            complaints.append(f"the checkpoint's cursor is {checkpoint.cursor}, the ledger's {self.committed}")
        if not self.ended:
            complaints.append("the run has not ended")
        if sorted(by_step) != list(range(1, len(self.rows) + 1)):
            complaints.append(f"weights hold steps {sorted(by_step)}, the ledger knows {len(self.rows)}")
        for step, rows in enumerate(self.rows, start=1):
            if rows is None:
                complaints += [] if step in forgotten else [f"the ledger does not know what step {step} holds"]
            elif sorted(by_step.get(step, [])) != sorted(rows):
                complaints.append(f"step {step}: weights hold {sorted(by_step.get(step, []))}, planned {sorted(rows)}")
        return complaints + self._epoch_complaints(by_step, store_rows)

    def _epoch_complaints(self, by_step: dict[int, list[int]], store_rows: int) -> list[str]:
        """Whenever a step ends with an epoch, all rows so far must have come equally often."""
        complaints = []
        seen: Counter[int] = Counter()
        boundaries = 0
        for step, end in enumerate(self.ends, start=1):
            seen.update(by_step.get(step, []))
            if end is None:
                continue
            consumed = end["epoch"] * store_rows + end["position"]
            if end["window"] is not None or consumed % store_rows:
                continue
            boundaries += 1
            times = consumed // store_rows
            wrong = {row: seen[row] for row in range(store_rows) if seen[row] != times}
            if wrong:
                complaints.append(
                    f"after step {step} each row should have come {times} times, but row -> times: {wrong}"
                )
        if not boundaries:
            complaints.append("no step ended with an epoch: nothing was compared")
        return complaints


def collect(client: DataClient) -> dict[str, Any]:
    """Ask the server about the run and all its steps: the fields of an `Audit`."""
    run = client.get_run(RUN)
    steps = [describe(client, number) for number in range(1, run.committed.step + 1)]
    audit = Audit(
        rows=[step and [sample.row for batch in step.micro_batches for sample in batch.samples] for step in steps],
        ends=[step and asdict(step.end) for step in steps],
        committed=asdict(run.committed),
        ended=run.ended,
    )
    return asdict(audit)


def describe(client: DataClient, step: int) -> StepDescription | None:
    """What `step` holds, or None when the ledger does not know where it begins."""
    try:
        return client.describe_step(RUN, step)
    except VersionNotFoundError:
        return None
