"""Which files make a store, and in which order.

    path ── a file ───────────────> that file
         ── a directory ──────────> its data files, recursively, in natural order of relative paths
         ── `save_to_disk` output ─> the files that `state.json` names

A file is data, ignored for a named reason, or a stranger; a strange file refuses the store,
because passing over it could lose rows. The rules are the same wherever the files lie.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dataserver.errors import StoreNotFoundError, StoreRefusedError
from dataserver.stores.copies import JsonCopies
from dataserver.stores.files import StoreFiles, is_hidden
from dataserver.stores.local_files import LocalFiles

FORMATS = {".parquet": "parquet", ".arrow": "arrow", ".feather": "arrow"} | {
    name + packed: "json" for name in (".jsonl", ".json") for packed in ("", ".gz", ".zst")
}
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

    `links` are files outside of the store that links inside it lead to: (relative path, target). `copies` are read in
    place of files of a format that is not read as it is.
    """

    files: StoreFiles
    format: str
    paths: tuple[str, ...]
    ignored: tuple[IgnoredPath, ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    copies: JsonCopies | None = None


def discover(path: Path) -> Discovery:
    """Find the files of the store at `path`.

    Raises `StoreNotFoundError` where nothing is there, `StoreRefusedError` for pipes and the like, strange files,
    mixed formats, and a directory without data.
    """
    check_is_text(str(path), str(path.parent))
    if path.is_file():
        return discover_file(LocalFiles(root=path.parent), path.name)
    if not path.exists():
        raise StoreNotFoundError(f"Pretokenized dataset at '{path}': there is no such file or directory.")
    if not path.is_dir():
        raise StoreRefusedError(f"Pretokenized dataset at '{path}' is a pipe or a device: give a file of rows.")
    return discover_directory(LocalFiles(root=path))


def discover_file(files: StoreFiles, name: str) -> Discovery:
    """The store that is the one file `name`."""
    check_is_text(name, files.name)
    return Discovery(files=files, format=_format_of(files, name), paths=(name,))


def discover_directory(files: StoreFiles) -> Discovery:
    """The store that is a directory of files."""
    if files.is_file(_SPLITS):
        raise _splits_refusal(files)
    if files.is_file(_STATE):
        return _discover_saved(files)
    return _discover_loose(files)


def natural_key(relative: str) -> tuple[tuple[str | int, ...], str]:
    """Sort key under which `chunk-2` comes before `chunk-10`; distinct paths never tie.

    Text and numbers take turns in it, so that like is compared with like.
    """
    pieces = re.split(r"([0-9]+)", relative)
    return tuple(int(piece) if at % 2 else piece for at, piece in enumerate(pieces)), relative


def _discover_loose(files: StoreFiles) -> Discovery:
    data: list[str] = []
    ignored: list[IgnoredPath] = []
    for relative in files.walk():
        check_is_text(relative, files.name)
        _check_nothing_saved(files, relative)
        reason = _why_ignored(relative)
        if reason is None:
            _check_is_file(files, relative)
            data.append(relative)
        else:
            ignored.append(IgnoredPath(path=relative, reason=reason))
    formats = {relative: _format_of(files, relative) for relative in sorted(data, key=natural_key)}
    ignored += _side_files(formats)
    _check_one_format(files, formats)
    return Discovery(
        files=files,
        format=next(iter(formats.values())),
        paths=tuple(formats),
        ignored=tuple(sorted(ignored, key=lambda entry: natural_key(entry.path))),
        links=files.links_out(tuple(formats)),
    )


def check_is_text(name: str, where: str) -> None:
    """Refuse a name that no message and no library could hold."""
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise StoreRefusedError(f"{name!r} in {where!r} is no UTF-8: rename it.") from error


def _check_nothing_saved(files: StoreFiles, relative: str) -> None:
    below, _, name = relative.rpartition("/")
    if below and name in (_STATE, _SPLITS):
        raise StoreRefusedError(
            f"'{files.name}/{below}' was written by save_to_disk and lies inside the store '{files.name}'. "
            "Name such a directory as a store of its own."
        )


def _why_ignored(relative: str) -> str | None:
    """The reason why a file is no data, or None."""
    kind = "directory" if relative.endswith("/") else "file"
    name = relative.rstrip("/").rsplit("/", 1)[-1]
    lower = name.lower()
    if is_hidden(name):
        return f"hidden or underscore {kind}"
    if lower.endswith(".crc"):
        return "checksum file"
    if lower.endswith(".tmp"):
        return "temporary file"
    if lower.startswith("readme"):
        return "readme"
    return None


def _side_files(formats: dict[str, str]) -> list[IgnoredPath]:
    """Take the `.json` files beside Arrow or Parquet shards out of `formats`: they tell of the shards."""
    if not {"arrow", "parquet"} & set(formats.values()):
        return []
    beside = [relative for relative in formats if relative.lower().endswith(".json")]
    for relative in beside:
        del formats[relative]
    return [IgnoredPath(path=relative, reason="JSON side file") for relative in beside]


def _check_is_file(files: StoreFiles, relative: str) -> None:
    """A link to nothing would lose rows, and a pipe could be waited on for ever."""
    if not files.is_file(relative):
        raise StoreRefusedError(
            f"'{relative}' in '{files.name}' is no file that can be read: is it a broken link, or a pipe?"
        )


def _format_of(files: StoreFiles, relative: str) -> str:
    lower = relative.lower()
    for suffix, name in FORMATS.items():
        if lower.endswith(suffix):
            return name
    raise StoreRefusedError(
        f"'{relative}' in '{files.name}' is no data file that is known ({', '.join(FORMATS)}) and none that is "
        "ignored. Rename it, move it away, or let its name begin with '_'."
    )


def _check_one_format(files: StoreFiles, formats: dict[str, str]) -> None:
    if not formats:
        raise StoreRefusedError(
            f"Pretokenized dataset at '{files.name}': no data files ({', '.join(FORMATS)}) in this directory."
        )
    first = {name: path for path, name in reversed(formats.items())}
    if len(first) > 1:
        raise StoreRefusedError(
            f"Pretokenized dataset at '{files.name}' mixes formats: "
            + ", ".join(f"'{path}' is {name}" for name, path in sorted(first.items()))
            + ". A store has one data format."
        )


def _splits_refusal(files: StoreFiles) -> StoreRefusedError:
    splits = _read_json(files, _SPLITS).get("splits")
    choices = ", ".join(f"'{split}'" for split in splits) if isinstance(splits, list) else "none that it names"
    return StoreRefusedError(
        f"'{files.name}' holds several splits of a data set: {choices}. Name one of them, as `split` in the "
        "configuration or --split at the command line."
    )


def _discover_saved(files: StoreFiles) -> Discovery:
    """A `save_to_disk` directory: `_data_files` decides, whatever else lies beside."""
    state = _read_json(files, _STATE)
    try:
        names = [str(entry["filename"]) for entry in state["_data_files"]]
    except (KeyError, TypeError) as error:
        raise StoreRefusedError(
            f"'{files.name}/{_STATE}' names no _data_files: it was not written by save_to_disk."
        ) from error
    if not names:
        raise StoreRefusedError(f"Pretokenized dataset at '{files.name}': '{_STATE}' names no data files.")
    if state.get("_indices_data_files"):
        raise StoreRefusedError(f"'{files.name}' selects rows through an indices file. Save it with flatten_indices().")
    _check_are_there(files, names)
    ignored = [
        IgnoredPath(path=name, reason="not among the data files of state.json")
        for name in files.top()
        if name not in names
    ]
    return Discovery(
        files=files, format="arrow", paths=tuple(names), ignored=tuple(ignored), links=files.links_out(names)
    )


def _check_are_there(files: StoreFiles, names: Iterable[str]) -> None:
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise StoreRefusedError(
            f"'{files.name}/{_STATE}' names the data file '{twice}' twice, which would repeat its rows.", shard=twice
        )
    for name in names:
        check_is_text(name, files.name)
        if "/" in name or not files.is_file(name):
            raise StoreRefusedError(
                f"'{files.name}/{_STATE}' names the data file '{name}', which is not there.", shard=name
            )


def _read_json(files: StoreFiles, name: str) -> dict[str, Any]:
    source = files.open(name)
    try:
        content = json.loads(source.read(0, source.size)[:])
    except ValueError as error:
        raise StoreRefusedError(f"'{files.name}/{name}' is not readable as JSON: {error}.") from error
    if not isinstance(content, dict):
        raise StoreRefusedError(f"'{files.name}/{name}' is not a JSON object.")
    return content
