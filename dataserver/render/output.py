"""What a job leaves: a store with its counts, whole or not there; and what jobs that never end leave behind."""

import glob
import json
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import BinaryIO, Final

from dataserver.errors import InvalidConfigError, StoreRefusedError
from dataserver.render.part import PartReport
from dataserver.render_options import OnError, RenderOptions
from dataserver.storage.file_locks import lock_now
from dataserver.stores.index import write_atomically

log = logging.getLogger(__name__)

REPORT: Final = "_render.json"
REJECTS: Final = "_rejects.jsonl"

# Work that nobody went on with for so long is nobody's any more.
_ABANDONED_S: Final = 14 * 24 * 3600.0

# How often one who waits for a lock looks.
_LOOK_EVERY_S: Final = 0.25


def make_once(
    out: Path, key: str, options: RenderOptions, make: Callable[[Path], tuple[Path, PartReport]]
) -> PartReport:
    """Make the store `out`; returns its counts.

    `make` gets a directory in which earlier lives of the job left their work, and returns what becomes the store, with
    its counts. It is not called where a store of the same key is there; where another process makes `out`, its end is
    waited for. Raises what `make` raises, `InvalidConfigError` where something else stands at `out`, or nothing can be
    written, and `StoreRefusedError` for bad rows that were set aside and should not be.
    """
    out = out.absolute()
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with locked(out.with_name(f".{out.name}.rendering")):
            directory = out.with_name(f"{out.name}.rendering-{key}")
            if (done := _finished(out, key)) is None and (done := _counts(directory, key)) is not None:
                # An earlier life of the job ended while it published.
                _publish(directory, out)
            if done is not None:
                _refuse_rejected(out, done, options)
                return done
            directory.mkdir(exist_ok=True)
            whole, total = make(directory)
            _finish(whole, key, total)
            _publish(whole, out)
            return total
    except OSError as error:
        raise InvalidConfigError(
            f"'{out}' cannot be written ({error}). What was rendered is kept: mend that, and render again."
        ) from error


def _finished(out: Path, key: str) -> PartReport | None:
    """The counts of a store of this key at `out`; None where nothing is. Raises `InvalidConfigError` for another."""
    if not out.exists():
        return None
    if (counts := _counts(out, key)) is not None:
        return counts
    raise InvalidConfigError(
        f"'{out}' is there already, and was not rendered from this input with these options: name another --out, "
        "or remove it"
    )


def _counts(directory: Path, key: str) -> PartReport | None:
    """What a store of this key in `directory` came to; None where there is none."""
    try:
        content = json.loads((directory / REPORT).read_text(encoding="utf-8"))
        return PartReport.from_json(json.dumps(content["counts"])) if content["key"] == key else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


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


def _finish(directory: Path, key: str, total: PartReport) -> None:
    """Write what a store tells of itself; the report last, with which the store in `directory` is whole."""
    with (directory / REJECTS).open("w", encoding="utf-8") as file:
        for reject in total.rejects:
            file.write(json.dumps(asdict(reject), ensure_ascii=False) + "\n")
    counts = {**asdict(total), "rejects": []}
    write_atomically(directory / REPORT, json.dumps({"key": key, "counts": counts}, indent=1))


def _publish(directory: Path, out: Path) -> None:
    """Make the whole store in `directory` the store `out` in one step, without what the job noted for itself."""
    for note in (*directory.glob("part-*.json"), *directory.glob("*.tmp")):
        note.unlink()
    directory.rename(out)
    for stale in out.parent.glob(f"{glob.escape(out.name)}.rendering-*"):
        shutil.rmtree(stale, ignore_errors=True)


def sweep(directory: Path) -> None:
    """Remove what jobs in `directory` left that were given up: nothing in it was written for 14 days."""
    for work in directory.glob("*.rendering-*"):
        try:
            written = max(path.stat().st_mtime for path in (work, *work.iterdir()))
        except FileNotFoundError:  # it became a store just now
            continue
        if time.time() - written > _ABANDONED_S:
            log.warning("removing %s, the work of a job that was given up", work)
            shutil.rmtree(work, ignore_errors=True)


@contextmanager
def locked(path: Path, waiting: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold a lock that ends with the process, however it ends; wait for whoever holds it. The file goes with it.

    `waiting` is called now and then while another process holds it; without, the log says so once.
    """
    while True:
        with path.open("ab") as file:
            _take(file, path, waiting)
            if not _is_at(file, path):
                continue
            try:
                yield
            finally:
                path.unlink(missing_ok=True)
            return


def _take(file: BinaryIO, path: Path, waiting: Callable[[], None] | None) -> None:
    told = False
    while True:
        if lock_now(file):
            return
        if waiting is not None:
            waiting()
        elif not told:
            log.warning("waiting for another process that renders or pulls the same, which holds %s", path)
            told = True
        time.sleep(_LOOK_EVERY_S)


def _is_at(file: BinaryIO, path: Path) -> bool:
    """Whether the open file is still the one of that name: whoever held the lock before removed it."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
