"""Where bytes of stores come from when they are no local files. Knows nothing of rows.

    find_objects(url) ──> Storage, [ObjectInfo]
    storage.read(info, begin, end) ──> exactly these bytes of exactly this version

- `objects`   what there is to read, and the protocol of all storages
- `open`      from a URL to a storage
- `local`, `filesystem`   `file://`; `memory://`
- `retrying`  how often, how soon and for how long a call is tried
"""

from dataserver.storage.objects import ObjectInfo, Storage
from dataserver.storage.open import find_objects, is_url, open_storage
from dataserver.storage.retrying import ReadPolicy

__all__ = ["ObjectInfo", "ReadPolicy", "Storage", "find_objects", "is_url", "open_storage"]
