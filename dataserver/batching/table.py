"""The samples of a run: lengths for planning, bytes for streaming."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from dataserver.sampling.order import Samples
from dataserver.stores import ServedRows
from dataserver.stores.ahead import BlockRef
from dataserver.stores.destination import Destination, grouped
from dataserver.stores.row_copy import fill_rows

ScalarT = TypeVar("ScalarT", bound=np.generic)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFormat:
    """How images are served. `pixel_bytes`: bytes of a value, 2 or 4. `patch_values`: values of one patch."""

    pixel_bytes: int
    patch_values: int


class SourceTable:
    """The sources of a run, each a view of a store; implements `planning.plan.SampleTable`.

    `weighted`: which sources use the weights of their store; targets of the others weigh 1. Empty: none does.
    `images`: None where no source has any.
    """

    def __init__(
        self,
        views: Sequence[ServedRows],
        token_bytes: int,
        *,
        weighted: Sequence[bool] = (),
        images: ImageFormat | None = None,
    ) -> None:
        self._views = tuple(views)
        self.token_bytes = token_bytes
        self.images = images
        self._weighted = tuple(weighted) or (False,) * len(self._views)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Kept rows of each source."""
        return tuple(view.rows for view in self._views)

    @property
    def is_weighted(self) -> bool:
        """Whether micro-batches carry weights."""
        return any(self._weighted)

    def lengths(self, samples: Samples) -> NDArray[np.int64]:
        """Tokens served of each sample, int64[n]."""
        return self._per_source(samples, np.int64, lambda source, rows: self._views[source].lengths(rows))

    def targets(self, samples: Samples) -> NDArray[np.int64]:
        """Targets of each sample, int64[n]."""
        return self._per_source(samples, np.int64, lambda source, rows: self._views[source].targets(rows))

    def weights(self, samples: Samples) -> NDArray[np.float64] | None:
        """What these targets weigh, float64[n]; None where no source uses weights."""
        return self._per_source(samples, np.float64, self._weights) if self.is_weighted else None

    def has_images(self, samples: Samples) -> NDArray[np.bool_] | None:
        """Which samples have images, bool[n]; None where no source has any."""
        if self.images is None:
            return None
        return self._per_source(samples, np.bool_, lambda source, rows: self._views[source].has_images(rows))

    def store_rows(self, samples: Samples) -> NDArray[np.int64]:
        """Row of each sample in its store, before any drop, int64[n]."""
        return self._per_source(samples, np.int64, lambda source, rows: self._views[source].store_rows(rows))

    def offsets(self, samples: Samples) -> NDArray[np.int64]:
        """First token of each sample in its row, int64[n]: above 0 in the later pieces of a row that is split."""
        return self._per_source(samples, np.int64, lambda source, rows: self._views[source].offsets(rows))

    def room(self, begins: NDArray[np.int64], size: int, *, covered: bool, tokens: bool) -> Destination:
        """Room for all of samples that begin at `begins` (int64[n]), with or without their tokens: `Destination.of`."""
        return Destination.of(
            begins,
            size,
            covered=covered,
            token_bytes=self.token_bytes if tokens else 0,
            mask=True,
            weights=self.is_weighted,
            pixel_bytes=0 if self.images is None else self.images.pixel_bytes,
        )

    def read(self, samples: Samples, lengths: NDArray[np.int64], into: Destination) -> None:
        """Write tokens, loss mask, weights and images of samples, whose `lengths` these are; as `ServedRows.read`."""
        if len(self._views) == 1:
            self._views[0].read(samples.row, lengths, into)
            return
        for source, at in grouped(samples.source):
            weighted = self._weighted[source]
            self._views[source].read(
                samples.row[at], lengths[at], into if weighted else replace(into, loss_weight=None), at
            )
            if into.loss_weight is not None and not weighted:
                fill_rows(1, lengths[at], into.loss_weight, into.at(at))

    def _weights(self, source: int, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        view = self._views[source]
        return view.weights(rows) if self._weighted[source] else view.targets(rows).astype(np.float64)

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
        self,
        samples: Samples,
        dtype: type[ScalarT],
        read: Callable[[int, NDArray[np.int64]], NDArray[ScalarT]],
    ) -> NDArray[ScalarT]:
        if len(self._views) == 1:
            return read(0, samples.row)
        values = np.empty(len(samples), dtype=dtype)
        for source in range(len(self._views)):
            mine = np.flatnonzero(samples.source == source)
            if len(mine):
                values[mine] = read(source, samples.row[mine])
        return values
