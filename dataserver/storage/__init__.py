"""Where bytes of stores come from when they are no local files. Knows nothing of rows.

    find_objects(url) ──> Storage, [ObjectInfo]
    storage.read(info, begin, end) ──> exactly these bytes of exactly this version
    cache.get(key, digest, fetch)  ──> the same, from a local disk if they are there

- `objects`   what there is to read, and the protocol of all storages
- `open`      from a URL to a storage
- `retrying`  how often, how soon and for how long a call is tried
- `local`, `memory`, `hub`   `file://`; `memory://`; `hf://`
- `buckets`, `options`, `object_store`, `aws_credentials`   `s3://`, `gs://`, `az://`
- `pull`, `staging`   a whole store, brought to a local directory
- `disk_cache`, `cache_entry`, `cache_space`   ranges kept on a local disk
"""

from dataserver.storage.cache_entry import Buffer, CacheKey
from dataserver.storage.disk_cache import CacheFigures, DiskCache
from dataserver.storage.objects import ObjectInfo, Storage, WritableStorage
from dataserver.storage.open import find_objects, is_url, is_writable, open_storage, open_writable
from dataserver.storage.retrying import ReadPolicy

__all__ = [
    "Buffer",
    "CacheFigures",
    "CacheKey",
    "DiskCache",
    "ObjectInfo",
    "ReadPolicy",
    "Storage",
    "WritableStorage",
    "find_objects",
    "is_url",
    "is_writable",
    "open_storage",
    "open_writable",
]
