"""What the scan of each shard came to, kept until its store is whole: a pass that was killed goes on at its shard.

    <index>/shards/<key>/    arrays of one shard and `shard.json`; key = hash of place, path, stamp, mask mode

A shard that changed meanwhile has another stamp, hence another key, and is scanned anew.
"""

import json
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from dataserver.stores.files import FileStamp
from dataserver.stores.index import Building, map_array, unseal
from dataserver.stores.manifest import INDEX_VERSION, WEIGHTS, Shard, shard_of
from dataserver.stores.piece_index import RunningFigures
from dataserver.stores.spans import HEADS, SPANS
from dataserver.stores.tables import BLOCK_FIELDS, BLOCKS, FIRST_TARGETS, LENGTHS, TARGETS

_FACTS = "shard.json"
_DTYPES = {
    LENGTHS: "<i4",
    FIRST_TARGETS: "<i4",
    TARGETS: "<i4",
    WEIGHTS: "<f8",
    BLOCKS: "<i8",
    SPANS: "<i8",
    HEADS: "u1",
}

# Arrays whose first field of each record is the number of the shard, and how many fields a record has.
_NUMBERED = {BLOCKS: len(BLOCK_FIELDS), SPANS: 6}

# A smaller shard is scanned again sooner than its result is written and synced.
WORTH_BYTES = 8 << 20

_CHUNK = 1 << 20


@dataclass(slots=True)
class ShardResults:
    """Results of the shards of one store, found by `place`: what names the store and how it is read."""

    index: Path
    place: str
    _used: list[Path] = field(default_factory=list)

    def building(self) -> Building:
        """Where the arrays of one shard are made."""
        return Building(self.index)

    def keep(self, building: Building, shard: Shard, figures: RunningFigures) -> None:
        """Give a scanned shard, whose arrays are in `building`, its name."""
        facts = {"shard": asdict(shard), "figures": figures.state(), "digests": building.digests()}
        building.write_json(_FACTS, facts)
        building.publish(self._path(shard.path, shard.stamp))

    def add_to(
        self, building: Building, figures: RunningFigures, number: int, path: str, stamp: FileStamp
    ) -> Shard | None:
        """Add what is kept of shard `number` to the store's arrays and figures; None if nothing whole is."""
        directory = self._path(path, stamp)
        try:
            facts = unseal((directory / _FACTS).read_text(encoding="utf-8"))
            arrays = {name: _open(directory / name, name, digest) for name, digest in facts["digests"].items()}
            shard, found = shard_of(facts["shard"]), RunningFigures.of_state(facts["figures"])
        except (OSError, ValueError, TypeError, KeyError):
            return None
        if any(array is None for array in arrays.values()):
            return None
        for name, array in arrays.items():
            if array is not None:
                _append(building, name, array, number)
        figures.merge(found)
        return shard

    def clear(self) -> None:
        """Drop what was kept: the store is whole."""
        while self._used:
            shutil.rmtree(self._used.pop(), ignore_errors=True)

    def _path(self, path: str, stamp: FileStamp) -> Path:
        key = json.dumps([self.place, path, stamp.size, stamp.version, stamp.changed_ns, INDEX_VERSION])
        directory = self.index / "shards" / xxhash.xxh3_128_hexdigest(key.encode())
        if directory not in self._used:
            self._used.append(directory)
        return directory


def _open(path: Path, name: str, digest: str) -> NDArray[Any] | None:
    dtype = _DTYPES[name]
    return map_array(path, dtype, path.stat().st_size // np.dtype(dtype).itemsize, digest)


def _append(building: Building, name: str, array: NDArray[Any], number: int) -> None:
    fields = _NUMBERED.get(name)
    if fields is not None:
        array = array.copy()
        array.reshape(-1, fields)[:, 0] = number
    for begin in range(0, len(array), _CHUNK):
        building.append(name, array[begin : begin + _CHUNK])
