"""A set of conversations made into a store: in parallel, resumable, whole or not there.

    input ──> chunks ──engine──> parts in OUT.rendering-KEY ──> rename to OUT

KEY names the input's contents, the tokenizer, the template, the options and the packages that render. A job that was
killed finds its parts by it and goes on; another input or option never meets them.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import xxhash

from dataserver.render.output import make_once
from dataserver.render.part import PartReport, part_report
from dataserver.render.rows import Chunk, Input, ReportBytes, chunks_of, faults_told, report_nothing, stat_of
from dataserver.render.tokenizer import render_key
from dataserver.render_options import OnError, RenderOptions
from dataserver.stores.index import file_digest, seal, unseal, write_atomically


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What an engine renders: `chunks` of the input into parts in `directory`."""

    source: Input
    chunks: tuple[Chunk, ...]
    options: RenderOptions
    directory: Path


class Engine(Protocol):
    """Renders chunks somewhere, and yields each one's number and report as it is done, in any order."""

    def __call__(self, work: Work) -> Iterator[tuple[int, PartReport]]:
        """Raises `StoreRefusedError` for a bad row that is not to be collected."""


# Chunks done, chunks in all, and what the done ones gave.
ReportProgress = Callable[[int, int, PartReport], None]


def render_store(
    source: Input,
    out: Path,
    options: RenderOptions,
    *,
    key: str,
    engine: Engine,
    progress: ReportProgress,
    reading: ReportBytes = report_nothing,
) -> PartReport:
    """Render conversations into the store `out`; returns the counts. `key`: see `job_key`; `reading`: `chunks_of`.

    Raises `StoreRefusedError` for a bad row, and what `make_once` raises.
    """

    def make(directory: Path) -> tuple[Path, PartReport]:
        work = Work(source=source, chunks=chunks_of(source, reading), options=options, directory=directory)
        return directory, _rendered(work, engine, progress)

    return make_once(out, key, options, make)


def _rendered(work: Work, engine: Engine, progress: ReportProgress) -> PartReport:
    """Render what the directory lacks; what all chunks came to, in their order."""
    chunks = work.chunks
    found = {chunk.number: part_report(work.directory, chunk.number) for chunk in chunks}
    reports = {number: report for number, report in found.items() if report is not None}
    if work.options.on_error is OnError.STOP:
        # Parts of a job that collected bad rows: rendered again, so that the first one stops this job.
        reports = {number: report for number, report in reports.items() if not report.rejected}
    total = PartReport()
    for report in reports.values():
        total.add(report)
    progress(len(reports), len(chunks), total)
    left = tuple(chunk for chunk in chunks if chunk.number not in reports)
    for number, report in engine(replace(work, chunks=left)) if left else ():
        reports[number] = report
        total.add(report)
        progress(len(reports), len(chunks), total)
    whole = PartReport()
    for chunk in chunks:
        whole.add(reports[chunk.number])
    return whole


def job_key(
    source: Input,
    options: RenderOptions,
    memory: Path | None = None,
    progress: ReportBytes = report_nothing,
) -> str:
    """XXH3-128, in hex, of the input's names and bytes and of all that decides how they are rendered.

    `memory`: a file that keeps the digests of input files, so that those that are as they were are not read again.
    `progress`: called with bytes whose digest is known and bytes in all, where some have to be read.
    """
    known = _remembered(memory)
    digest = xxhash.xxh3_128(render_key(options).encode())
    stats = [stat_of(source, path) for path in source.paths]
    done, total = 0, sum(stat.st_size for stat in stats)

    def read(count: int) -> None:
        nonlocal done
        done += count
        progress(done, total)

    for path, stat in zip(source.paths, stats, strict=True):
        file = (source.directory / path).absolute()
        stamp = f"{stat.st_size} {stat.st_mtime_ns} {stat.st_ino}"
        if known.get(str(file), ("", ""))[0] == stamp:
            done += stat.st_size
        else:
            with faults_told(path):
                known[str(file)] = (stamp, file_digest(file, read))
        digest.update(f"{path}\n{known[str(file)][1]}\n".encode())
    if memory is not None:
        write_atomically(memory, seal(known))
    return digest.hexdigest()


def _remembered(memory: Path | None) -> dict[str, tuple[str, str]]:
    """Stamp and digest of files by path; what cannot be read is nothing."""
    if memory is None:
        return {}
    try:
        return {path: (stamp, digest) for path, (stamp, digest) in unseal(memory.read_text(encoding="utf-8")).items()}
    except (OSError, ValueError, KeyError, TypeError):
        return {}
