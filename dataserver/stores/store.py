"""An open store: rows by number, figures, and views for one longest sample.

rows ──> shard (search) ──> reader (mapped or decoded) ──> one slice a row
"""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dataserver.errors import OutOfRangeError, StoreRefusedError
from dataserver.run_spec import LongRows
from dataserver.stores.admitted import Admitted
from dataserver.stores.amplification import read_amplification
from dataserver.stores.destination import Destination
from dataserver.stores.discovery import Discovery, IgnoredPath
from dataserver.stores.manifest import Manifest
from dataserver.stores.row import Row, row_spans, rows_of
from dataserver.stores.schema import LossMask
from dataserver.stores.selection import REASONS, Figures, check_usable, sum_up, verdicts
from dataserver.stores.served import ServedRows
from dataserver.stores.shard_rows import ShardRows
from dataserver.stores.split import check_splittable
from dataserver.stores.tables import Tables
from dataserver.stores.view import open_view
from dataserver.wire.store_info import ReadAmplificationInfo

# Longest samples for which a store remembers its figures: some hundred bytes each.
_KEPT_FIGURES = 64


class Store(Admitted):
    """An admitted store. Reads are safe from several threads; pickles as a reference that reopens it.

    `path`, `index_dir` as given to `open_store`; `tables` are mapped and read-only. Row numbers count rows of the store
    from 0. `reopen`: a function of a module that opens it again from path, mask, index directory and fingerprint.
    """

    def __init__(
        self,
        *,
        path: Path | str,
        index_dir: Path,
        discovery: Discovery,
        manifest: Manifest,
        tables: Tables,
        shard_rows: ShardRows,
        reopen: Callable[[Path | str, LossMask, Path, str], "Store"],
    ) -> None:
        self.path = path
        self.index_dir = index_dir
        super().__init__(manifest)
        self._discovery = discovery
        self.tables = tables
        self._reopen = reopen
        self._shard_rows = shard_rows
        self._figures = lru_cache(_KEPT_FIGURES)(partial(sum_up, tables))

    @property
    def is_far(self) -> bool:
        """Whether it lies in object storage."""
        return not self._discovery.files.watched

    @property
    def ignored(self) -> tuple[IgnoredPath, ...]:
        """Paths that were passed over, and why."""
        return self._discovery.ignored

    @property
    def links(self) -> tuple[tuple[str, str], ...]:
        """Shards that are links out of the store: relative path and target."""
        return self._discovery.links

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, row: int) -> Row:
        return self.read_rows([row])[0]

    def __iter__(self) -> Iterator[Row]:
        for span in row_spans(self.tables, self.images):
            yield from self.read_rows(span)

    def lengths(self) -> NDArray[np.int32]:
        """Tokens of each row, int32[rows], mapped and read-only."""
        return self.tables.lengths

    def lengths_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Tokens of each of `rows`, int64[n]."""
        return self.tables.lengths[rows].astype(np.int64)

    @property
    def checked_rows(self) -> int:
        """Rows that were checked so far."""
        return self.rows

    def read_rows(
        self, rows: Sequence[int] | NDArray[np.int64], *, max_length: int | None = None, images: bool = True
    ) -> list[Row]:
        """The rows, or the first `max_length` tokens of each, in the order asked; each block is read once.

        Images are those of the whole row, and left out without `images`.
        Raises `OutOfRangeError` for a row that there is not.
        """
        wanted = np.asarray(rows, dtype=np.int64)
        self._check_range(wanted)
        longest = self.longest_row if max_length is None else max_length
        lengths = np.minimum(self.tables.lengths[wanted].astype(np.int64), longest)
        pixel_bytes = self.images.pixel_bytes if images and self.images is not None else 0
        into = Destination.end_to_end(
            lengths, token_bytes=4, mask=True, weights=self.has_weights, pixel_bytes=pixel_bytes
        )
        self._shard_rows.read(wanted, lengths, into)
        return rows_of(into, lengths, self.images)

    def figures(self, max_length: int, long_rows: LongRows = LongRows.TRUNCATE) -> Figures:
        """What is served when no sample is longer than `max_length`; nothing is written for it.

        See `selection.sum_up` for its cost; the figures asked last are remembered.
        """
        check_splittable(self.path, self.loss_mask, long_rows)
        return self._figures(max_length, long_rows)

    def reasons(
        self, begin: int, end: int, max_length: int, long_rows: LongRows = LongRows.TRUNCATE
    ) -> tuple[str, ...]:
        """Why each of the rows from `begin` up to `end` is not served; empty for a row that is."""
        if not 0 <= begin <= end <= self.rows:
            raise OutOfRangeError(f"There are no rows {begin} to {end} in '{self.path}', which has {self.rows} rows.")
        found = verdicts(self.tables, slice(begin, end), max_length, long_rows)
        return tuple(REASONS[at] for at in found.tolist())

    def view(self, max_length: int, long_rows: LongRows = LongRows.TRUNCATE) -> ServedRows:
        """The rows of an order whose samples are at most `max_length` long, for serving.

        Its arrays are kept in the index directory, 12 bytes a row at most. Raises `StoreRefusedError`
        if nothing would be served, and for the first longer row if `long_rows` refuses them; `InvalidSpecError` if it
        splits rows that have a mask.
        """
        view = self.selection(max_length, long_rows)
        check_usable(self.path, max_length, view.figures)
        return view

    def selection(self, max_length: int, long_rows: LongRows = LongRows.TRUNCATE) -> ServedRows:
        """`view`, even if it has no rows."""
        check_splittable(self.path, self.loss_mask, long_rows)
        return open_view(self, self.tables, self._shard_rows, max_length, long_rows)

    def prepare(self) -> None:
        """Have what reads it compiled for serving, be it with wider tokens than its own. Seconds, once a machine."""
        for token_bytes in sorted({self.token_bytes, 4}):
            self._shard_rows.prepare(token_bytes)

    def read_amplification(self) -> ReadAmplificationInfo | None:
        """What a full shuffle costs where the decoded store is larger than the cache; None where it is not."""
        return read_amplification(self._manifest, self.tables, self._shard_rows.cache_bytes)

    def check_vocab(self, vocab_size: int) -> None:
        """Raise `StoreRefusedError`, naming the first row with a token at or above `vocab_size`, if there is one."""
        if self.max_token < vocab_size:
            return
        rows = (row for span in row_spans(self.tables, None) for row in self.read_rows(span, images=False))
        for number, row in enumerate(rows):
            high = row.input_ids >= vocab_size
            if high.any():
                raise StoreRefusedError(
                    f"Row {number}: input_ids holds {row.input_ids[high][0]}, at or above vocab_size = {vocab_size}. "
                    "Was the store tokenized for another model?",
                    row=number,
                    column="input_ids",
                )

    def check_unchanged(self) -> None:
        """Compare shards' sizes and versions with the manifest, some hundreds at a time; raises `StoreDamagedError`."""
        self._shard_rows.check_unchanged()

    def close(self) -> None:
        """Let go of maps and decoded blocks. Idempotent; arrays that were handed out stay valid."""
        self._shard_rows.close()

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return self._reopen, (self.path, self.loss_mask, self.index_dir, self.fingerprint)

    def _check_range(self, rows: NDArray[np.int64]) -> None:
        broken = (rows < 0) | (rows >= self.rows)
        if broken.any():
            raise OutOfRangeError(f"There is no row {rows[broken][0]} in '{self.path}', which has {self.rows} rows.")
