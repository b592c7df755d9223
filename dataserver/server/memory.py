"""How a serving process treats memory: keep what messages are made of, and leave what never dies out of collections.

Python's garbage collector would look at every imported module, again and again.
"""

import gc
from typing import Final

from dataserver.freed_memory import keep_freed_memory, use_one_heap

# Objects that come to be before the youngest generation is looked at: more than a plan or a message makes.
_YOUNG_OBJECTS: Final = 50_000


def settle() -> None:
    """Call once everything is imported and admitted."""
    keep_freed_memory()
    use_one_heap()
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS)
