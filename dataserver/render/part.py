"""One chunk rendered: a part of the store that comes out, and what did not become samples.

chunk ──rows──> conversation ──renderer──> sample ──> part-00012.arrow
                    └ bad row ──> stop, or part-00012.json   (written last: with it the part is done)
"""

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa

from dataserver.errors import StoreRefusedError
from dataserver.render.conversation import RowError, conversation_of
from dataserver.render.rows import Chunk, Input, InputRow, rows_of
from dataserver.render.sample import Renderer, Sample
from dataserver.render_options import OnError, RenderOptions
from dataserver.stores.schema import INPUT_IDS, LOSS_MASK

_TYPES: dict[str, pa.DataType] = {INPUT_IDS: pa.list_(pa.int32()), LOSS_MASK: pa.list_(pa.int8())}
SCHEMA = pa.schema(_TYPES)

# Tokens of a record batch: what is held until it is written.
_BATCH_TOKENS = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Reject:
    """A row that became no sample, by its number within its file, and why."""

    path: str
    row: int
    reason: str


@dataclass(slots=True, kw_only=True)
class PartReport:
    """What came of a chunk's rows.

    `dropped`: by reason. `rejects`: the `rejected` bad rows, while they are at hand. `joined`: see `Sample`.
    """

    rows: int = 0
    samples: int = 0
    tokens: int = 0
    targets: int = 0
    cut_tokens: int = 0
    rejected: int = 0
    joined: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    rejects: list[Reject] = field(default_factory=list)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what was written beside the part; anything else raises `ValueError`, `TypeError` or `KeyError`."""
        content: dict[str, Any] = json.loads(text)
        content["rejects"] = [Reject(**entry) for entry in content["rejects"]]
        return cls(**content)

    def drop(self, reason: str, count: int = 1) -> None:
        """Count rows that give no sample."""
        self.dropped[reason] = self.dropped.get(reason, 0) + count

    def add(self, other: "PartReport") -> None:
        """Count what another chunk gave."""
        for name in ("rows", "samples", "tokens", "targets", "cut_tokens", "rejected", "joined"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for reason, count in other.dropped.items():
            self.drop(reason, count)
        self.rejects += other.rejects


def part_name(number: int) -> str:
    """File name of a part, which sorts as its chunk does."""
    return f"part-{number:06d}.arrow"


def part_report(directory: Path, number: int) -> PartReport | None:
    """The report of a part that is done, or None."""
    try:
        return PartReport.from_json((directory / part_name(number)).with_suffix(".json").read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        return None


def render_part(
    source: Input, chunk: Chunk, *, renderer: Renderer, options: RenderOptions, directory: Path
) -> PartReport:
    """Render a chunk into `directory`. The same chunk gives the same bytes, and it is whole or not done.

    Raises `StoreRefusedError` for the first bad row, unless bad rows are collected.
    """
    path = directory / part_name(chunk.number)
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    report = PartReport()
    with pa.OSFile(str(temporary), "wb") as sink, pa.ipc.new_stream(sink, SCHEMA) as writer:
        held: list[Sample] = []
        written = 0
        for row in rows_of(source, chunk):
            sample = _sample(row, chunk, renderer=renderer, options=options, report=report)
            if sample is not None:
                held.append(sample)
            if report.tokens - written >= _BATCH_TOKENS:
                writer.write_batch(batch_of(held))
                written = report.tokens
                held.clear()
        if held:
            writer.write_batch(batch_of(held))
    _publish(temporary, path)
    temporary.write_text(json.dumps(asdict(report)), encoding="utf-8")
    _publish(temporary, path.with_suffix(".json"))
    return report


def _sample(
    row: InputRow, chunk: Chunk, *, renderer: Renderer, options: RenderOptions, report: PartReport
) -> Sample | None:
    """The sample of a row, counted; None where it gives none."""
    report.rows += 1
    try:
        if isinstance(row.value, RowError):
            raise row.value
        sample = renderer.render(conversation_of(row.value))
    except (RowError, RecursionError) as error:
        reason = str(error) if isinstance(error, RowError) else "it is nested too deeply"
        if options.on_error is OnError.STOP:
            raise StoreRefusedError(
                f"File '{chunk.path}', row {row.number}: {reason}. Mend the row, or set bad rows aside with "
                "--on-error collect.",
                shard=chunk.path,
                row=row.number,
            ) from error
        report.rejected += 1
        report.rejects.append(Reject(path=chunk.path, row=row.number, reason=reason))
        return None
    length = len(sample.input_ids) if options.max_length is None else min(len(sample.input_ids), options.max_length)
    # The first token has no predecessor, so nothing learns from its being a target.
    targets = int(np.count_nonzero(sample.loss_mask[1:length]))
    if targets == 0:
        report.drop("target_cut_off" if sample.loss_mask[1:].any() else "no_target")
        return None
    report.samples += 1
    report.tokens += length
    report.targets += targets
    report.cut_tokens += len(sample.input_ids) - length
    report.joined += sample.joined
    return Sample(input_ids=sample.input_ids[:length], loss_mask=sample.loss_mask[:length])


def batch_of(samples: list[Sample]) -> pa.RecordBatch:
    """The rows of `samples`."""
    ends = pa.array(np.cumsum([0, *(len(sample.input_ids) for sample in samples)]), pa.int32())
    ids = pa.array(np.concatenate([sample.input_ids for sample in samples]), pa.int32())
    mask = pa.array(np.concatenate([sample.loss_mask for sample in samples]).astype(np.int8), pa.int8())
    lists: list[pa.Array[Any]] = [pa.ListArray.from_arrays(ends, ids), pa.ListArray.from_arrays(ends, mask)]
    return pa.RecordBatch.from_arrays(lists, schema=SCHEMA)


def _publish(temporary: Path, final: Path) -> None:
    with temporary.open("rb") as file:
        os.fsync(file.fileno())
    temporary.replace(final)
