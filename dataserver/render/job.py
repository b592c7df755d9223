"""A set of conversations made into a store: in parallel, resumable, whole or not there.

    input ──> chunks ──engine──> parts in OUT.rendering-KEY ──> rename to OUT

KEY names the input's contents, the tokenizer, the template, the options and the packages that render. A job that was
killed finds its parts by it and goes on; another input or option never meets them.
"""

import fcntl
import glob
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO, Final, Protocol

import xxhash

from dataserver.errors import InvalidConfigError, StoreRefusedError
from dataserver.render.part import PartReport, part_name, part_report
from dataserver.render.rows import Chunk, Input, chunks_of
from dataserver.render.tokenizer import render_key
from dataserver.render_options import OnError, RenderOptions
from dataserver.stores.index import file_digest, seal, unseal, write_atomically

log = logging.getLogger(__name__)

REPORT: Final = "_render.json"
REJECTS: Final = "_rejects.jsonl"


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
    source: Input, out: Path, options: RenderOptions, *, key: str, engine: Engine, progress: ReportProgress
) -> PartReport:
    """Render conversations into the store `out`; returns the counts. `key`: see `job_key`.

    A store that is there already, of the same key, is left alone; where another process makes `out`, its end is
    waited for. Raises `StoreRefusedError` for a bad row, `InvalidConfigError` where something else stands at `out`, or
    nothing can be written.
    """
    out = out.absolute()
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with locked(out.with_name(f".{out.name}.rendering")):
            if (done := _finished(out, key)) is not None:
                _refuse_rejected(out, done, options)
                return done
            directory = out.with_name(f"{out.name}.rendering-{key}")
            directory.mkdir(exist_ok=True)
            reports = _rendered(source, directory, options, engine, progress)
            return _finish(directory, out, key, reports)
    except OSError as error:
        raise InvalidConfigError(
            f"'{out}' cannot be written ({error}). What was rendered is kept: mend that, and render again."
        ) from error


def _rendered(
    source: Input, directory: Path, options: RenderOptions, engine: Engine, progress: ReportProgress
) -> list[PartReport]:
    """Render what `directory` lacks; the reports of all chunks, in order."""
    chunks = chunks_of(source)
    found = {chunk.number: part_report(directory, chunk.number) for chunk in chunks}
    reports = {number: report for number, report in found.items() if report is not None}
    if options.on_error is OnError.STOP:
        # Parts of a job that collected bad rows: rendered again, so that the first one stops this job.
        reports = {number: report for number, report in reports.items() if not report.rejected}
    total = PartReport()
    for report in reports.values():
        total.add(report)
    progress(len(reports), len(chunks), total)
    left = tuple(chunk for chunk in chunks if chunk.number not in reports)
    work = Work(source=source, chunks=left, options=options, directory=directory)
    for number, report in engine(work) if left else ():
        reports[number] = report
        total.add(report)
        progress(len(reports), len(chunks), total)
    return [reports[chunk.number] for chunk in chunks]


def job_key(source: Input, options: RenderOptions, memory: Path | None = None) -> str:
    """XXH3-128, in hex, of the input's names and bytes and of all that decides how they are rendered.

    `memory`: a file that keeps the digests of input files, so that those that are as they were are not read again.
    """
    known = _remembered(memory)
    digest = xxhash.xxh3_128(render_key(options).encode())
    for path in source.paths:
        file = (source.directory / path).absolute()
        stat = file.stat()
        stamp = f"{stat.st_size} {stat.st_mtime_ns} {stat.st_ino}"
        if known.get(str(file), ("", ""))[0] != stamp:
            known[str(file)] = (stamp, file_digest(file))
        digest.update(f"{path}\n{known[str(file)][1]}\n".encode())
    if memory is not None:
        write_atomically(memory, seal(known))
    return digest.hexdigest()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock that ends with the process, however it ends; wait for whoever holds it. The file goes with it."""
    while True:
        with path.open("ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                log.warning("waiting for another process that renders or pulls the same, which holds %s", path)
                fcntl.flock(file, fcntl.LOCK_EX)
            if not _is_at(file, path):
                continue
            try:
                yield
            finally:
                path.unlink(missing_ok=True)
            return


def _is_at(file: BinaryIO, path: Path) -> bool:
    """Whether the open file is still the one of that name: whoever held the lock before removed it."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _remembered(memory: Path | None) -> dict[str, tuple[str, str]]:
    """Stamp and digest of files by path; what cannot be read is nothing."""
    if memory is None:
        return {}
    try:
        return {path: (stamp, digest) for path, (stamp, digest) in unseal(memory.read_text(encoding="utf-8")).items()}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _finished(out: Path, key: str) -> PartReport | None:
    """The counts of a store of this key at `out`; None where nothing is. Raises `InvalidConfigError` for another."""
    if not out.exists():
        return None
    try:
        content = json.loads((out / REPORT).read_text(encoding="utf-8"))
        if content["key"] == key:
            return PartReport.from_json(json.dumps(content["counts"]))
    except (OSError, ValueError, KeyError, TypeError):
        pass
    raise InvalidConfigError(
        f"'{out}' is there already, and was not rendered from this input with these options: name another --out, "
        "or remove it"
    )


def _refuse_rejected(out: Path, report: PartReport, options: RenderOptions) -> None:
    """A store that was made with bad rows set aside is no answer to who wants to hear of them."""
    if options.on_error is OnError.STOP and report.rejected:
        with (out / REJECTS).open(encoding="utf-8") as file:
            first = json.loads(file.readline())
        raise StoreRefusedError(
            f"File '{first['path']}', row {first['row']}: {first['reason']}. It and {report.rejected - 1} more bad "
            f"rows were set aside when '{out}' was rendered with on_error = collect: say so here too, or mend them.",
            shard=first["path"],
            row=first["row"],
        )


def _finish(directory: Path, out: Path, key: str, reports: Sequence[PartReport]) -> PartReport:
    """Make the directory of parts the store: what is no data goes, then it is renamed in one step."""
    total = PartReport()
    for report in reports:
        total.add(report)
    with (directory / REJECTS).open("w", encoding="utf-8") as file:
        for reject in total.rejects:
            file.write(json.dumps(asdict(reject), ensure_ascii=False) + "\n")
    for number in range(len(reports)):
        (directory / part_name(number)).with_suffix(".json").unlink()
    for left in directory.glob("*.tmp"):
        left.unlink()
    counts = {**asdict(total), "rejects": []}
    write_atomically(directory / REPORT, json.dumps({"key": key, "counts": counts}, indent=1))
    directory.rename(out)
    for stale in out.parent.glob(f"{glob.escape(out.name)}.rendering-*"):
        shutil.rmtree(stale, ignore_errors=True)
    return total
