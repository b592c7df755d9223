"""Conversations as a store of a server: brought here, rendered once, and then a store like any other.

path | URL ──pull──> local files ──render──> DIRECTORY/KEY ──> open_store
└ digests, remembered by size, time and inode
"""

from collections.abc import Callable, Mapping
from pathlib import Path

import xxhash

from dataserver.render.job import job_key, locked, render_store
from dataserver.render.local import LocalEngine
from dataserver.render.rows import find_input
from dataserver.render_options import RenderOptions
from dataserver.storage import find_objects, is_url
from dataserver.storage.pull import pull


def rendered(
    path: Path | str,
    options: RenderOptions,
    directory: Path,
    *,
    storage_options: Mapping[str, str],
    progress: Callable[[int, int], None],
) -> Path:
    """The store of the conversations at `path`, below `directory`; rendered now unless it is there.

    Several processes may ask at once: one renders and the others wait. `progress` is called with chunks done and
    chunks in all, while files are brought here with their bytes. Raises what `render_store` and reading raise.
    """
    directory.mkdir(parents=True, exist_ok=True)
    conversations = find_input(_local(path, directory, storage_options, progress))
    key = job_key(conversations, options, memory=directory / "digests.json")
    render_store(
        conversations, directory / key, options,
        key=key, engine=LocalEngine(), progress=lambda done, total, _report: progress(done, total),
    )  # fmt: skip
    return directory / key


def _local(
    path: Path | str, directory: Path, storage_options: Mapping[str, str], progress: Callable[[int, int], None]
) -> Path:
    """Where the files lie on this machine: those behind a URL are pulled, once for each version of them."""
    if not is_url(str(path)):
        return Path(path)
    storage, infos = find_objects(str(path), dict(storage_options))
    versions = "\n".join(f"{info.path} {info.size} {info.version}" for info in infos)
    pulled = directory / f"pulled-{xxhash.xxh3_128_hexdigest((str(path) + versions).encode())}"
    with locked(pulled.with_suffix(".lock")):
        pull(storage, infos, pulled, progress)
    return pulled
