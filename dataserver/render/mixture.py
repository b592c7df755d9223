"""Several sets of conversations made into one store: each rendered for itself, and then one epoch of their mixture.

    sources ──render──> a store each ──sample_order──> rows in the order of a run's first epoch ──> OUT

The order is that of runs, by the same code: laid end to end where no source has a weight, and else drawn by weight,
the rows of each as they are stored, until the stopping strategy says so.
"""

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import xxhash
from pydantic import ValidationError

from dataserver.errors import InvalidConfigError
from dataserver.render.job import Engine, ReportProgress, job_key, render_store
from dataserver.render.output import make_once
from dataserver.render.part import SCHEMA, PartReport, batch_of, part_name
from dataserver.render.rows import Input
from dataserver.render.sample import Sample
from dataserver.render_options import RenderOptions
from dataserver.run_spec import OrderSpec, Shuffle, Source
from dataserver.sampling.build import sample_order
from dataserver.sampling.order import Place
from dataserver.settings import faults_of
from dataserver.stores import Row, Store, open_store
from dataserver.weighting import DEFAULT_STOPPING, Stopping

# Rows that are read at a time, and tokens of a file of the mixture.
_READ_ROWS: Final = 1024
_FILE_TOKENS: Final = 1 << 26


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixture:
    """Sources by the name under which they were given, each with its weight, or none with any."""

    sources: tuple[tuple[str, Input], ...]
    weights: tuple[float, ...] | None = None
    stopping: Stopping = DEFAULT_STOPPING

    def order(self, longest: int = 2) -> OrderSpec:
        """What a run over the sources would say; raises `InvalidConfigError` for weights that cannot be."""
        weights = self.weights or (None,) * len(self.sources)
        try:
            return OrderSpec(
                sources=tuple(
                    Source(store=name, weight=weight)
                    for (name, _), weight in zip(self.sources, weights, strict=True)
                ),
                shuffle=Shuffle.SEQUENTIAL, stopping=self.stopping, max_length=max(longest, 2),
            )  # fmt: skip
        except ValidationError as error:
            raise InvalidConfigError(f"mixture refused: {faults_of(error, 'sources')}") from error
        except ValueError as error:
            raise InvalidConfigError(
                f"{len(weights)} weights for {len(self.sources)} sources: give each source one, or none of them"
            ) from error


def render_mixture(
    mixture: Mixture, out: Path, options: RenderOptions, *, engine: Engine, progress: ReportProgress
) -> PartReport:
    """Render the sources and write one epoch of their mixture to `out`; returns the counts.

    Rows, rejects and drops are those of the sources; samples, tokens and targets those of the mixture. Raises what
    `render_store` raises, and `InvalidSpecError` for an order that cannot be.
    """
    mixture.order()
    keys = [job_key(source, options) for _, source in mixture.sources]
    key = xxhash.xxh3_128_hexdigest(repr((keys, mixture.weights, str(mixture.stopping))).encode())

    def make(directory: Path) -> tuple[Path, PartReport]:
        total = PartReport()
        for number, ((_, source), source_key) in enumerate(zip(mixture.sources, keys, strict=True)):
            place = directory / f"source-{number:04d}"
            total.add(render_store(source, place, options, key=source_key, engine=engine, progress=progress))
        return _mix(mixture, directory, total), total

    return make_once(out, key, options, make)


def _mix(mixture: Mixture, directory: Path, total: PartReport) -> Path:
    """Write the mixture of the stores in `directory`, and count it in `total`."""
    mixed = directory / "mixed"
    shutil.rmtree(mixed, ignore_errors=True)
    mixed.mkdir()
    stores = [
        open_store(directory / f"source-{number:04d}", index_dir=directory / "index")
        for number in range(len(mixture.sources))
    ]
    total.samples = total.tokens = total.targets = 0
    try:
        for number, samples in enumerate(_files(_drawn(mixture, stores))):
            with pa.OSFile(str(mixed / part_name(number)), "wb") as sink, pa.ipc.new_stream(sink, SCHEMA) as writer:
                for batch in samples:
                    writer.write_batch(batch_of(batch))
                    total.samples += len(batch)
                    total.tokens += sum(len(sample.input_ids) for sample in batch)
                    total.targets += sum(int(np.count_nonzero(sample.loss_mask[1:])) for sample in batch)
    finally:
        for store in stores:
            store.close()
    return mixed


def _drawn(mixture: Mixture, stores: Sequence[Store]) -> Iterator[list[Sample]]:
    """The samples of the mixture's first epoch, some at a time."""
    spec = mixture.order(max(store.longest_row for store in stores))
    order = sample_order(spec, [store.view(spec.max_length) for store in stores])
    for begin in range(0, order.epoch_size, _READ_ROWS):
        drawn = order.samples(Place(position=begin), min(_READ_ROWS, order.epoch_size - begin))
        rows: list[Row | None] = [None] * len(drawn)
        for source, store in enumerate(stores):
            places = np.flatnonzero(drawn.source == source)
            for place, row in zip(places.tolist(), store.read_rows(drawn.row[places]), strict=True):
                rows[place] = row
        yield [
            Sample(input_ids=row.input_ids.astype(np.int32), loss_mask=row.loss_mask.astype(np.bool_))
            for row in rows
            if row is not None
        ]


def _files(batches: Iterator[list[Sample]]) -> Iterator[Iterator[list[Sample]]]:
    """The batches of one file after another."""
    tokens = 0

    def file_of(batch: list[Sample]) -> int:
        nonlocal tokens
        begin, tokens = tokens, tokens + sum(len(sample.input_ids) for sample in batch)
        return begin // _FILE_TOKENS

    for _, members in groupby(batches, key=file_of):
        yield members
