"""Conversations as a store of a server: brought here, rendered once, and then a store like any other.

path | URL ──pull──> local files ──render──> DIRECTORY/KEY ──> open_store
     | datasets://NAME ┘
└ digests, remembered by size, time and inode
"""

from collections.abc import Callable, Mapping
from pathlib import Path

import xxhash

from dataserver.render.hub import find_data_set, is_data_set
from dataserver.render.job import job_key, render_store
from dataserver.render.local import LocalEngine
from dataserver.render.output import locked, sweep
from dataserver.render.rows import Input, find_input
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
    sweep(directory)
    conversations = find_conversations(path, directory, storage_options=storage_options, progress=progress)
    key = job_key(conversations, options, memory=directory / "digests.json")
    render_store(
        conversations, directory / key, options,
        key=key, engine=LocalEngine(), progress=lambda done, total, _report: progress(done, total),
    )  # fmt: skip
    return directory / key


def find_conversations(
    path: Path | str,
    directory: Path,
    *,
    storage_options: Mapping[str, str],
    progress: Callable[[int, int], None],
) -> Input:
    """The files of conversations at `path`, on this machine.

    Those behind a URL are pulled below `directory`, once for each version of them; a data set of a hub is fetched to
    where `datasets` keeps it. Raises what finding and reading raise.
    """
    if is_data_set(str(path)):
        return find_data_set(str(path))
    if not is_url(str(path)):
        return find_input(Path(path))
    storage, infos = find_objects(str(path), dict(storage_options))
    versions = "\n".join(f"{info.path} {info.size} {info.version}" for info in infos)
    directory.mkdir(parents=True, exist_ok=True)
    pulled = directory / f"pulled-{xxhash.xxh3_128_hexdigest((str(path) + versions).encode())}"
    with locked(pulled.with_suffix(".lock")):
        pull(storage, infos, pulled, progress)
    return find_input(pulled)
