"""Data sets by the name that the `datasets` package knows them by: `datasets://ORG/NAME:SUBSET@SPLIT`.

    datasets://allenai/tulu-3-sft-mixture            split `train` of the only subset
    datasets://PrimeIntellect/INTELLECT-3-SFT:math   split `train` of subset `math`
    datasets:///data/builder:chats@validation        a directory that `load_dataset` knows how to read

The package fetches a data set once and keeps it as Arrow files; those are read where it keeps them. How far that is
shows in how much has come to lie there: the package tells it to terminals alone.
"""

import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from dataserver.errors import InvalidConfigError
from dataserver.render.rows import Input, ReportBytes, report_nothing
from dataserver.stores.local_files import LocalFiles

_SCHEME: Final = "datasets://"
_ADDRESS: Final = re.compile(r"(?P<name>[^:@]+)(:(?P<subset>[^:@]+))?(@(?P<split>\w+))?")

# How often it is looked how much has come.
_LOOK_EVERY_S: Final = 0.5


def is_data_set(address: str) -> bool:
    """Whether `address` names a data set rather than files."""
    return address.startswith(_SCHEME)


def names_of(address: str) -> tuple[str, str | None, str]:
    """Data set, subset (None: the only one) and split that `address` names; raises `InvalidConfigError`."""
    parts = _ADDRESS.fullmatch(address.removeprefix(_SCHEME))
    if parts is None:
        raise InvalidConfigError(
            f"'{address}' names no data set: write datasets://ORG/NAME:SUBSET@SPLIT, with a whole split, or leave out "
            "SUBSET (where there is one) and SPLIT (for train)"
        )
    return parts["name"], parts["subset"], parts["split"] or "train"


def find_data_set(address: str, progress: ReportBytes = report_nothing) -> Input:
    """Fetch the data set, unless it is at hand, and find its files; raises `InvalidConfigError`.

    `progress`: bytes that have come, be it as they were sent or as they are kept, and bytes in all; 0 in all where the
    data set does not tell.
    """
    name, subset, split = names_of(address)
    try:
        import datasets  # noqa: PLC0415 - a large package, which few installations have
    except ImportError as error:
        raise InvalidConfigError(
            f"'{address}' needs more packages: pip install 'dataserver[hub]'; or render its Parquet files"
        ) from error
    try:
        builder = datasets.load_dataset_builder(name, subset)
        expected = (builder.info.download_size or 0) + (builder.info.dataset_size or 0)
        with telling_growth(_places(builder), expected, progress), _without_bars(datasets):
            found = datasets.load_dataset(name, subset, split=split)
    except Exception as error:  # the package raises whatever fetching and parsing do
        raise InvalidConfigError(
            f"the data set '{address}' cannot be had ({type(error).__name__}: {error}). Is the name right, and "
            "can this machine reach the hub? Without a network it has to be in the cache of `datasets` already"
        ) from error
    files = [Path(file["filename"]) for file in found.cache_files]
    if not files or len({file.parent for file in files}) != 1:
        raise InvalidConfigError(
            f"'{address}' is kept in {len(files)} files in several places, or in none: render its files"
        )
    directory, paths = files[0].parent, tuple(file.name for file in files)
    stamps = tuple(LocalFiles(root=directory).stat(name) for name in paths)
    return Input(directory=directory, format="arrow", paths=paths, stamps=stamps)


def _places(builder: Any) -> list[Path]:  # noqa: ANN401 - a builder of `datasets`
    """Where a data set comes to lie: what is sent by the hub, and the Arrow files that are made of it."""
    from huggingface_hub import constants  # noqa: PLC0415
    from huggingface_hub.file_download import repo_folder_name  # noqa: PLC0415

    kept = Path(builder.cache_dir).parent
    if builder.repo_id is None:
        return [kept]
    return [kept, Path(constants.HF_HUB_CACHE) / repo_folder_name(repo_id=builder.repo_id, repo_type="dataset")]


@contextmanager
def _without_bars(datasets: Any) -> Iterator[None]:  # noqa: ANN401 - a module
    """The packages' own bars, of which there is one a file, would be written over ours and into the server's log."""
    from huggingface_hub import utils as hub  # noqa: PLC0415

    shown = [bars for bars in (datasets.utils, hub) if not bars.are_progress_bars_disabled()]
    for bars in shown:
        bars.disable_progress_bars()
    try:
        yield
    finally:
        for bars in shown:
            bars.enable_progress_bars()


@contextmanager
def telling_growth(directories: Sequence[Path], expected: int, progress: ReportBytes) -> Iterator[None]:
    """Tell every half second, and at the end of the block, by how many bytes `directories` have grown within it."""
    before = sum(map(_size, directories))

    def tell() -> None:
        grown = max(sum(map(_size, directories)) - before, 0)
        progress(grown, max(grown, expected) if expected else 0)

    ended = threading.Event()
    watch = threading.Thread(target=_every, args=(ended, tell), daemon=True, name="fetching")
    watch.start()
    try:
        yield
    finally:
        ended.set()
        watch.join()
    tell()


def _every(ended: threading.Event, tell: Callable[[], None]) -> None:
    while not ended.wait(_LOOK_EVERY_S):
        tell()


def _size(directory: Path) -> int:
    """Bytes of the files below `directory`, without those that are gone by now."""
    size = 0
    for place, _, names in os.walk(directory):
        for name in names:
            with suppress(FileNotFoundError):
                size += os.lstat(os.path.join(place, name)).st_size  # noqa: PTH118
    return size
