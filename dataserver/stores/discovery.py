"""Which files make a store, and in which order.

    path ── a file ───────────────> that file
         ── a directory ──────────> its data files, recursively, in natural order of relative paths
         ── `save_to_disk` output ─> the files that `state.json` names

A file is data, ignored for a named reason, or a stranger; a strange file refuses the store,
because passing over it could lose rows. Links to files are followed and, where they lead out of
the store, reported. Links to directories are refused: they may form loops.
"""

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dataserver.errors import StoreNotFoundError, StoreRefusedError
from dataserver.stores.files import LocalFiles, StoreFiles

FORMATS = {".parquet": "parquet", ".arrow": "arrow", ".feather": "arrow"}
_NOT_YET = (".jsonl", ".jsonl.gz", ".jsonl.zst", ".json.gz", ".json.zst")
_STATE = "state.json"
_SPLITS = "dataset_dict.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class IgnoredPath:
    """A path that was passed over, relative to the store, and why."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovery:
    """The files of a store: `paths` within `files`, in the order in which their rows count.

    `links` are files outside of the store that links inside it lead to: (relative path, target).
    """

    files: StoreFiles
    format: str
    paths: tuple[str, ...]
    ignored: tuple[IgnoredPath, ...] = ()
    links: tuple[tuple[str, str], ...] = ()


def discover(path: Path) -> Discovery:
    """Find the files of the store at `path`.

    Raises `StoreNotFoundError` where nothing is there, `StoreRefusedError` for strange files,
    mixed formats, and a directory without data.
    """
    if path.is_file():
        return Discovery(files=LocalFiles(root=path.parent), format=_format_of_file(path), paths=(path.name,))
    if not path.is_dir():
        raise StoreNotFoundError(f"Pretokenized dataset at '{path}': there is no such file or directory.")
    if (path / _SPLITS).is_file():
        raise _splits_refusal(path)
    if (path / _STATE).is_file():
        return _discover_saved(path)
    return _discover_directory(path)


def natural_key(relative: str) -> tuple[tuple[str | int, ...], str]:
    """Sort key under which `chunk-2` comes before `chunk-10`; distinct paths never tie.

    Text and numbers take turns in it, so that like is compared with like.
    """
    pieces = re.split(r"([0-9]+)", relative)
    return tuple(int(piece) if at % 2 else piece for at, piece in enumerate(pieces)), relative


def _discover_directory(root: Path) -> Discovery:
    data: list[str] = []
    ignored: list[IgnoredPath] = []
    for relative in _walk(root, "", ignored):
        reason = _why_ignored(relative)
        if reason is None:
            _check_is_file(root, relative)
            data.append(relative)
        else:
            ignored.append(IgnoredPath(path=relative, reason=reason))
    formats = {relative: _format_of(root, relative) for relative in sorted(data, key=natural_key)}
    _check_one_format(root, formats)
    return Discovery(
        files=LocalFiles(root=root),
        format=next(iter(formats.values())),
        paths=tuple(formats),
        ignored=tuple(sorted(ignored, key=lambda entry: natural_key(entry.path))),
        links=_links_out(root, formats),
    )


def _walk(root: Path, below: str, ignored: list[IgnoredPath]) -> Iterator[str]:
    """Relative paths of all files under `root/below`; hidden directories go to `ignored`."""
    with os.scandir(root / below) as entries:
        found = sorted(entries, key=lambda entry: entry.name)
    for entry in found:
        relative = f"{below}/{entry.name}" if below else entry.name
        if not entry.is_dir():
            if below and entry.name in (_STATE, _SPLITS):
                raise StoreRefusedError(
                    f"'{root / below}' was written by save_to_disk and lies inside the store '{root}'. "
                    "Name such a directory as a store of its own."
                )
            yield relative
        elif entry.name.startswith((".", "_")):
            ignored.append(IgnoredPath(path=f"{relative}/", reason="hidden or underscore directory"))
        elif entry.is_symlink():
            raise StoreRefusedError(
                f"'{relative}' in '{root}' is a link to a directory, which is not followed. "
                "Move the directory into the store, or name it as a store of its own."
            )
        else:
            yield from _walk(root, relative, ignored)


def _why_ignored(relative: str) -> str | None:
    """The reason why a file is no data, or None."""
    name = relative.rsplit("/", 1)[-1]
    lower = name.lower()
    if name.startswith((".", "_")):
        return "hidden or underscore file"
    if lower.endswith(".crc"):
        return "checksum file"
    if lower.endswith(".tmp"):
        return "temporary file"
    if lower.startswith("readme"):
        return "readme"
    if lower.endswith(".json"):
        return "JSON side file"
    return None


def _check_is_file(root: Path, relative: str) -> None:
    """A link to nothing would lose rows, and a pipe could be waited on for ever."""
    if not (root / relative).is_file():
        raise StoreRefusedError(
            f"'{relative}' in '{root}' is no file that can be read: is it a broken link, or a pipe?"
        )


def _format_of(root: Path, relative: str) -> str:
    lower = relative.lower()
    for suffix, name in FORMATS.items():
        if lower.endswith(suffix):
            return name
    if lower.endswith(_NOT_YET):
        return "jsonl"
    raise StoreRefusedError(
        f"'{relative}' in '{root}' is no data file that is known ({', '.join(FORMATS)}) and none that is ignored. "
        "Rename it, move it away, or let its name begin with '_'."
    )


def _format_of_file(path: Path) -> str:
    if path.name.lower().endswith(".json"):
        raise _not_yet(path)
    found = _format_of(path.parent, path.name)
    if found == "jsonl":
        raise _not_yet(path)
    return found


def _check_one_format(root: Path, formats: dict[str, str]) -> None:
    if not formats:
        raise StoreRefusedError(
            f"Pretokenized dataset at '{root}': no data files ({', '.join(FORMATS)}) in this directory."
        )
    first = {name: path for path, name in reversed(formats.items())}
    if len(first) > 1:
        raise StoreRefusedError(
            f"Pretokenized dataset at '{root}' mixes formats: "
            + ", ".join(f"'{path}' is {name}" for name, path in sorted(first.items()))
            + ". A store has one data format."
        )
    if "jsonl" in first:
        raise _not_yet(root / first["jsonl"])


def _not_yet(path: Path) -> StoreRefusedError:
    return StoreRefusedError(f"'{path}' is JSON, which is not read yet. Write it as Arrow or Parquet.")


def _links_out(root: Path, paths: dict[str, str]) -> tuple[tuple[str, str], ...]:
    found = []
    inside = root.resolve()
    for relative in paths:
        target = (root / relative).resolve()
        if not target.is_relative_to(inside):
            found.append((relative, str(target)))
    return tuple(found)


def _splits_refusal(root: Path) -> StoreRefusedError:
    splits = _read_json(root / _SPLITS).get("splits", [])
    choices = ", ".join(f"'{root / str(split)}'" for split in splits)
    return StoreRefusedError(f"'{root}' holds several splits of a data set. Name one of them: {choices}.")


def _discover_saved(root: Path) -> Discovery:
    """A `save_to_disk` directory: `_data_files` decides, whatever else lies beside."""
    state = _read_json(root / _STATE)
    try:
        names = [str(entry["filename"]) for entry in state["_data_files"]]
    except (KeyError, TypeError) as error:
        raise StoreRefusedError(
            f"'{root / _STATE}' names no _data_files: it was not written by save_to_disk."
        ) from error
    if not names:
        raise StoreRefusedError(f"Pretokenized dataset at '{root}': '{_STATE}' names no data files.")
    if state.get("_indices_data_files"):
        raise StoreRefusedError(f"'{root}' selects rows through an indices file. Save it with flatten_indices().")
    for name in names:
        if "/" in name or not (root / name).is_file():
            raise StoreRefusedError(f"'{root / _STATE}' names the data file '{name}', which is not there.", shard=name)
    ignored = [
        IgnoredPath(path=entry.name, reason="not among the data files of state.json")
        for entry in sorted(root.iterdir())
        if entry.name not in names
    ]
    return Discovery(
        files=LocalFiles(root=root),
        format="arrow",
        paths=tuple(names),
        ignored=tuple(ignored),
        links=_links_out(root, dict.fromkeys(names, "arrow")),
    )


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise StoreRefusedError(f"'{path}' is not readable as JSON: {error}.") from error
    if not isinstance(content, dict):
        raise StoreRefusedError(f"'{path}' is not a JSON object.")
    return content
