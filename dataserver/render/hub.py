"""Data sets by the name that the `datasets` package knows them by: `datasets://ORG/NAME:SUBSET@SPLIT`.

    datasets://allenai/tulu-3-sft-mixture            split `train` of the only subset
    datasets://PrimeIntellect/INTELLECT-3-SFT:math   split `train` of subset `math`
    datasets:///data/builder:chats@validation        a directory that `load_dataset` knows how to read

The package fetches a data set once and keeps it as Arrow files; those are read where it keeps them.
"""

import re
from pathlib import Path
from typing import Final

from dataserver.errors import InvalidConfigError
from dataserver.render.rows import Input
from dataserver.stores.local_files import LocalFiles

_SCHEME: Final = "datasets://"
_ADDRESS: Final = re.compile(r"(?P<name>[^:@]+)(:(?P<subset>[^:@]+))?(@(?P<split>\w+))?")


def is_data_set(address: str) -> bool:
    """Whether `address` names a data set rather than files."""
    return address.startswith(_SCHEME)


def find_data_set(address: str) -> Input:
    """Fetch the data set, unless it is at hand, and find its files; raises `InvalidConfigError`."""
    parts = _ADDRESS.fullmatch(address.removeprefix(_SCHEME))
    if parts is None:
        raise InvalidConfigError(
            f"'{address}' names no data set: write datasets://ORG/NAME:SUBSET@SPLIT, with a whole split, or leave out "
            "SUBSET (where there is one) and SPLIT (for train)"
        )
    try:
        import datasets  # noqa: PLC0415 - a large package, which few installations have
    except ImportError as error:
        raise InvalidConfigError(
            f"'{address}' needs more packages: pip install 'dataserver[hub]'; or render its Parquet files"
        ) from error
    try:
        found = datasets.load_dataset(parts["name"], parts["subset"], split=parts["split"] or "train")
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
