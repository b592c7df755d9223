"""The engine beyond one machine: the same chunks, on the workers of a Ray cluster, by Ray Data.

    chunks ──from_items──> dataset ──map, an actor a core──> numbers and reports, as they are done

Workers read the input and write parts themselves, so both lie where every worker reaches them under the same path.
https://docs.ray.io/en/latest/data/api/doc/ray.data.Dataset.map.html
"""

import json
import logging
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from dataserver.errors import InvalidConfigError, StoreRefusedError
from dataserver.render.job import Work
from dataserver.render.part import PartReport, render_part
from dataserver.render.rows import Chunk, Input
from dataserver.render.sample import Renderer
from dataserver.render.tokenizer import open_renderer
from dataserver.render_options import RenderOptions

_REFUSALS: Final = {error.__name__: error for error in (StoreRefusedError, InvalidConfigError)}


class RayEngine:
    """See `job.Engine`. `address`: of the cluster's head; None: a cluster of this machine, which ends with the job."""

    def __init__(self, address: str | None = None, actors: int | None = None) -> None:
        self._address = address
        self._actors = actors

    def __call__(self, work: Work) -> Iterator[tuple[int, PartReport]]:
        """See `job.Engine`."""
        try:
            import ray  # noqa: PLC0415 - a large package, which few installations have
        except ImportError as error:
            raise InvalidConfigError("--engine ray needs more packages: pip install 'dataserver[ray]'") from error
        ray.init(address=self._address, logging_level=logging.WARNING, log_to_driver=False, include_dashboard=False)
        try:
            yield from self._rendered(work, ray)
        finally:
            ray.shutdown()

    def _rendered(self, work: Work, ray: Any) -> Iterator[tuple[int, PartReport]]:  # noqa: ANN401 - a module
        import ray.data  # noqa: PLC0415

        actors = self._actors or int(ray.cluster_resources().get("CPU", 1))
        ray.data.DataContext.get_current().enable_progress_bars = False
        chunks = ray.data.from_items([asdict(chunk) for chunk in work.chunks], override_num_blocks=len(work.chunks))
        done = chunks.map(
            _RenderChunk,
            fn_constructor_args=(work.source, work.options, work.directory),
            compute=ray.data.ActorPoolStrategy(size=min(actors, len(work.chunks))),
        )
        for row in done.iter_rows():
            if row["refusal"]:
                refusal = json.loads(row["refusal"])
                raise _REFUSALS[refusal["kind"]](refusal["message"], **refusal["details"])
            yield int(row["number"]), PartReport.from_json(row["report"])


class _RenderChunk:
    """An actor: one renderer for as many chunks as come. A refusal is returned: raised, it would come out as Ray's."""

    def __init__(self, source: Input, options: RenderOptions, directory: Path) -> None:
        self._source = source
        self._options = options
        self._directory = directory
        self._renderer: Renderer | None = None

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """Render a chunk."""
        chunk = Chunk(**row)
        try:
            if self._renderer is None:
                self._renderer = open_renderer(self._options)
            report = render_part(
                self._source, chunk, renderer=self._renderer, options=self._options, directory=self._directory
            )
        except tuple(_REFUSALS.values()) as error:
            refusal = json.dumps({"kind": type(error).__name__, "message": error.message, "details": error.details})
            return {"number": chunk.number, "report": "", "refusal": refusal}
        return {"number": chunk.number, "report": json.dumps(asdict(report)), "refusal": ""}
