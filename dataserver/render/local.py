"""The engine of one machine: a process a core, each with a renderer of its own."""

import os
import threading
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from functools import cache
from multiprocessing import connection, get_context, parent_process
from pathlib import Path

from dataserver.render.job import Work
from dataserver.render.part import PartReport, render_part
from dataserver.render.rows import Chunk, Input
from dataserver.render.sample import Renderer
from dataserver.render.tokenizer import open_renderer
from dataserver.render_options import RenderOptions

# Chunks that wait for a process each: enough that none idles, few enough that an error ends the job soon.
_QUEUED = 2


class LocalEngine:
    """See `job.Engine`."""

    def __init__(self, processes: int | None = None) -> None:
        self._processes = processes or len(os.sched_getaffinity(0))

    def __call__(self, work: Work) -> Iterator[tuple[int, PartReport]]:
        """See `job.Engine`."""
        processes = min(self._processes, len(work.chunks))
        if processes == 1:
            yield from _here(work)
            return
        # Spawned: tokenizers have threads of their own, which do not survive a fork.
        pool = ProcessPoolExecutor(processes, mp_context=get_context("spawn"), initializer=_begin)
        chunks = iter(work.chunks)
        under_way: dict[Future[PartReport], int] = {}
        try:
            while True:
                while len(under_way) < processes * _QUEUED and (chunk := next(chunks, None)) is not None:
                    under_way[pool.submit(_render, work.options, work.source, chunk, work.directory)] = chunk.number
                if not under_way:
                    return
                done, _ = wait(under_way, return_when=FIRST_COMPLETED)
                for future in done:
                    yield under_way.pop(future), future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _here(work: Work) -> Iterator[tuple[int, PartReport]]:
    """A process of its own takes longer to start than a chunk takes to render."""
    renderer = open_renderer(work.options)
    for chunk in work.chunks:
        yield (
            chunk.number,
            render_part(work.source, chunk, renderer=renderer, options=work.options, directory=work.directory),
        )


def _begin() -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    # One thread a process: the processes share the cores.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"


def _end_with_parent() -> None:
    """Whoever is killed ends no pool, and its processes would wait for work for ever, some 350 MB each."""
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def _render(options: RenderOptions, source: Input, chunk: Chunk, directory: Path) -> PartReport:
    return render_part(source, chunk, renderer=_opened(options), options=options, directory=directory)


@cache
def _opened(options: RenderOptions) -> Renderer:
    """Once in a process. With a chunk and not when the process begins: what that raises, nobody would be told."""
    return open_renderer(options)
