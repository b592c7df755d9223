"""Conversations as a store of a server: brought here, rendered once, admitted once, and then a store like any other.

path | URL ──pull──> local files ──render──> INDEX/rendered/KEY ──check──> open_store
     | datasets://NAME ┘
└ digests, remembered by size, time and inode

One process at a time does this for the same conversations and options. Others wait, and know how far it is.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

import xxhash

from dataserver.render.hub import find_data_set, is_data_set
from dataserver.render.job import job_key, render_store
from dataserver.render.local import LocalEngine
from dataserver.render.output import locked, sweep
from dataserver.render.pace import Pace, ReportRendering, SharedProgress, Stage
from dataserver.render.rows import Input, find_input
from dataserver.render_options import RenderOptions
from dataserver.storage import find_objects, is_url
from dataserver.storage.pull import pull
from dataserver.stores import open_store
from dataserver.wire.store_info import RenderingInfo


def rendered(
    path: Path | str,
    options: RenderOptions,
    index_dir: Path,
    *,
    storage_options: Mapping[str, str],
    progress: ReportRendering,
) -> Path:
    """The store of the conversations at `path`, below `index_dir`; rendered and admitted now unless it is there.

    Several processes may ask at once: one renders and the others wait. `progress` is called about as often as
    something is done, and while another process does it. Raises what `render_store`, reading and admission raise.
    """
    directory = index_dir / "rendered"
    directory.mkdir(parents=True, exist_ok=True)
    sweep(directory)
    lock = lock_of(path, options, index_dir)
    shared = SharedProgress(lock.with_suffix(".progress"))

    def tell(info: RenderingInfo) -> None:
        shared.write(info)
        progress(info)

    with locked(lock, waiting=lambda: progress(shared.read())):
        try:
            found = find_conversations(
                path, directory, storage_options=storage_options, progress=Stage("fetching", tell)
            )
            memory = directory / "digests.json"
            key = job_key(found, options, memory=memory, progress=Stage("reading", tell))
            pace = Pace()
            render_store(
                found, directory / key, options, key=key, engine=LocalEngine(),
                progress=lambda done, total, report: tell(pace.rendering(done, total, report)),
                reading=Stage("reading", tell),
            )  # fmt: skip
            open_store(directory / key, index_dir=index_dir, progress=Stage("checking", tell)).close()
        finally:
            shared.close()
    return directory / key


def lock_of(path: Path | str, options: RenderOptions, index_dir: Path) -> Path:
    """What a process holds that renders the conversations at `path`."""
    name = xxhash.xxh3_128_hexdigest(f"{path} {options.model_dump_json()}".encode())
    return index_dir / "rendered" / f"source-{name}.lock"


def find_conversations(
    path: Path | str,
    directory: Path,
    *,
    storage_options: Mapping[str, str],
    progress: Callable[[int, int], None],
) -> Input:
    """The files of conversations at `path`, on this machine.

    Those behind a URL are pulled below `directory`, once for each version of them; a data set of a hub is fetched to
    where `datasets` keeps it. `progress`: bytes that are here, and bytes in all. Raises what finding and reading raise.
    """
    if is_data_set(str(path)):
        return find_data_set(str(path), progress)
    if not is_url(str(path)):
        return find_input(Path(path))
    storage, infos = find_objects(str(path), dict(storage_options))
    versions = "\n".join(f"{info.path} {info.size} {info.version}" for info in infos)
    directory.mkdir(parents=True, exist_ok=True)
    pulled = directory / f"pulled-{xxhash.xxh3_128_hexdigest((str(path) + versions).encode())}"
    with locked(pulled.with_suffix(".lock")):
        pull(storage, infos, pulled, progress)
    return find_input(pulled)
