"""Exactly once, shown from three sides that know nothing of one another.

    the store's files, read with Arrow alone      which samples there are
    the server, asked for each step of the run    which samples stand in which step
    the ranks, each at its optimizer step         which token ids they trained on

Only what is in the final weights counts: the steps of the first attempt up to the checkpoint that the second one began
with, and all steps of the second.
"""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa
from digests import sample_digest
from processes import DemoError
from settings import STORE

from dataserver.client import DataClient

Sample = TypeVar("Sample", int, str)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lives:
    """The steps whose updates are in the final weights, by the attempt that made them."""

    base: int
    last: int

    def attempt_of(self, step: int) -> int:
        """The attempt whose update of `step` survived."""
        return 1 if step <= self.base else 2

    @property
    def steps(self) -> range:
        """All of them."""
        return range(1, self.last + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What was found: samples of the epoch, rows without a target, samples that were trained on and thrown away."""

    samples: int
    dropped: int
    lost_with_attempt: int


def read_store(store: Path, max_length: int) -> dict[int, str]:
    """Row -> digest of what is to be served of it: its first `max_length` tokens, if one of them is a target."""
    shards = [pa.ipc.open_file(pa.memory_map(str(path))).read_all() for path in sorted(store.glob("*.arrow"))]
    table = pa.concat_tables(shards)
    columns: dict[str, list[list[int]]] = table.to_pydict()
    rows = zip(columns["input_ids"], columns["loss_mask"], strict=True)
    return {
        row: sample_digest(np.array(tokens[:max_length]), np.array(mask[:max_length]))
        for row, (tokens, mask) in enumerate(rows)
        if any(mask[1:max_length])
    }


def served_rows(client: DataClient, run: str, lives: Lives) -> dict[int, list[int]]:
    """Step -> rows, as the server describes each step."""
    rows: dict[int, list[int]] = {}
    for step in lives.steps:
        described = client.describe_step(run, step)
        if described.attempt != lives.attempt_of(step):
            raise DemoError(f"step {step} was sealed by attempt {described.attempt}, not {lives.attempt_of(step)}")
        rows[step] = [sample.row for batch in described.micro_batches for sample in batch.samples]
    return rows


def trained_samples(records: Path) -> dict[tuple[int, int], list[str]]:
    """(attempt, step) -> digests of what all ranks trained on."""
    trained: dict[tuple[int, int], list[str]] = {}
    for path in sorted(records.glob("attempt-*-rank-*.jsonl")):
        attempt = int(path.stem.split("-")[1])
        for line in path.read_text().splitlines():
            record = json.loads(line)
            trained.setdefault((attempt, record["step"]), []).extend(record["samples"])
    return trained


def prove(client: DataClient, run: str, lives: Lives, *, store: Path, records: Path, max_length: int) -> Proof:
    """Compare the three; raise `DemoError` with the first rows or steps that differ."""
    digests = read_store(store, max_length)
    served = served_rows(client, run, lives)
    trained = trained_samples(records)
    check_once("the server's steps", Counter(row for rows in served.values() for row in rows), digests.keys())
    for step in lives.steps:
        of_ranks = Counter(trained.get((lives.attempt_of(step), step), []))
        if of_ranks != Counter(digests[row] for row in served[step]):
            raise DemoError(f"step {step}: the ranks trained on other samples than the server says it holds")
    survived = [digest for step in lives.steps for digest in trained[lives.attempt_of(step), step]]
    check_once("the ranks' records", Counter(survived), digests.values())
    total = sum(map(len, trained.values()))
    rows = client.get_store(STORE).rows
    return Proof(samples=len(digests), dropped=rows - len(digests), lost_with_attempt=total - len(survived))


def check_once(where: str, counts: Counter[Sample], expected: Iterable[Sample]) -> None:
    """Raise unless `counts` has every expected thing as often as it is expected, and nothing else."""
    wanted = Counter(expected)
    if counts != wanted:
        missing, surplus = wanted - counts, counts - wanted
        raise DemoError(
            f"{where}: {missing.total()} samples missing, {surplus.total()} too many; "
            f"missing {list(missing)[:5]}, too many {list(surplus)[:5]}"
        )
