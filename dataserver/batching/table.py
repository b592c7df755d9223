"""The samples of a run: lengths for planning, bytes for streaming."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from dataserver.sampling.order import Samples
from dataserver.stores import StoreView
from dataserver.stores.ahead import BlockRef
from dataserver.stores.slices import Slices, gathered, grouped


class SourceTable:
    """The sources of a run, each a view of a store; implements `planning.plan.SampleTable`."""

    def __init__(self, views: Sequence[StoreView], token_bytes: int) -> None:
        self._views = tuple(views)
        self.token_bytes = token_bytes

    @property
    def sizes(self) -> tuple[int, ...]:
        """Kept rows of each source."""
        return tuple(view.rows for view in self._views)

    def lengths(self, samples: Samples) -> NDArray[np.int64]:
        """Tokens served of each sample, int64[n]."""
        return self._per_source(samples, lambda view, rows: view.lengths(rows))

    def targets(self, samples: Samples) -> NDArray[np.int64]:
        """Targets of each sample, int64[n]."""
        return self._per_source(samples, lambda view, rows: view.targets(rows))

    def weights(self, samples: Samples) -> NDArray[np.float64] | None:  # noqa: ARG002 - of no source yet
        """None: every target weighs 1."""
        return None

    def has_images(self, samples: Samples) -> NDArray[np.bool_] | None:  # noqa: ARG002 - of no source yet
        """None: no sample has images."""
        return None

    def store_rows(self, samples: Samples) -> NDArray[np.int64]:
        """Row of each sample in its store, before any drop, int64[n]."""
        return self._per_source(samples, lambda view, rows: view.store_rows(rows))

    def offsets(self, samples: Samples) -> NDArray[np.int64]:
        """First token of each sample in its row, int64[n]: above 0 in the later pieces of a row that is split."""
        return self._per_source(samples, lambda view, rows: view.offsets(rows))

    def read(self, samples: Samples) -> Slices:
        """Tokens, `token_bytes` wide, and loss mask of each sample; raises as `StoreView.read` does."""
        if len(self._views) == 1:
            return self._views[0].read(samples.row, self.token_bytes)
        parts = (
            (at, self._views[source].read(samples.row[at], self.token_bytes)) for source, at in grouped(samples.source)
        )
        return gathered(parts, len(samples))

    @property
    def decodes(self) -> bool:
        """Whether any source must be decoded before it is read."""
        return any(view.decodes for view in self._views)

    def blocks(self, samples: Samples) -> list[BlockRef]:
        """Blocks that `read` of the samples needs, about in the order of first use; none of stores that are mapped."""
        found: list[BlockRef] = []
        for source, at in sorted(grouped(samples.source), key=lambda group: int(group[1][0])):
            if self._views[source].decodes:
                found += self._views[source].blocks(samples.row[at])
        return found

    def _per_source(
        self, samples: Samples, read: Callable[[StoreView, NDArray[np.int64]], NDArray[np.int64]]
    ) -> NDArray[np.int64]:
        if len(self._views) == 1:
            return read(self._views[0], samples.row)
        values = np.empty(len(samples), dtype=np.int64)
        for source, view in enumerate(self._views):
            mine = np.flatnonzero(samples.source == source)
            if len(mine):
                values[mine] = read(view, samples.row[mine])
        return values
