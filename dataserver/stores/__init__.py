"""Stores: files of pretokenized rows, admitted whole or refused.

    open_store(path) ──discovery──> files ──admission──> manifest and index ──> Store ──view(max_length)──> ServedRows

A store is served with exactly the rows it holds, or refused with an error that names the row.
`open_store` is also the library form:

    store = open_store("chats/")
    len(store), store.fingerprint, store[0].input_ids
"""

from dataserver.stores.block_cache import BlockCache
from dataserver.stores.discovery import IgnoredPath
from dataserver.stores.index import default_index_dir
from dataserver.stores.manifest import LengthBucket, Shard
from dataserver.stores.opening import default_disk_cache_dir, open_store
from dataserver.stores.row import Row
from dataserver.stores.schema import Admission, Column, LossMask
from dataserver.stores.selection import Figures
from dataserver.stores.served import ServedRows
from dataserver.stores.store import Store

__all__ = [
    "Admission",
    "BlockCache",
    "Column",
    "Figures",
    "IgnoredPath",
    "LengthBucket",
    "LossMask",
    "Row",
    "ServedRows",
    "Shard",
    "Store",
    "default_disk_cache_dir",
    "default_index_dir",
    "open_store",
]
