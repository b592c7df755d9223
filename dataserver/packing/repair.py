"""Finding places for samples that fit nowhere, although all bins together have room for them.

What is missing is room in one place. So the emptiest bin exchanges samples with others that have room, larger ones
of its own for smaller ones of theirs, until it has room for the sample.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from dataserver.packing.exchange import MAKE_ROOM, Offers, improve
from dataserver.packing.held import Held, add
from dataserver.packing.placement import Items

# Of the other bins, so many emptiest ones are looked at.
_PARTNERS: Final = 24

# Bounds on samples times bins, and on what is looked at, for time.
_SEARCHED: Final = 2**19
_LOOKED_AT: Final = 2**21


def repair(items: Items, bins: NDArray[np.int64], *, capacity: int, bins_allowed: int) -> NDArray[np.int64]:
    """The bin of each item, int64[n], where `bins` has a number from `bins_allowed` on for items without a place.

    `bins` itself where no item is without one, or where not all of them can have one this way.
    """
    homeless = np.flatnonzero(bins >= bins_allowed)
    if not len(homeless) or len(homeless) * bins_allowed > _SEARCHED:
        return bins
    if int(items.size.sum()) > capacity * bins_allowed:
        return bins
    held = Held.of(items.size, items.cost, bins, count=bins_allowed, capacity=capacity)
    mine, others = Offers.space(len(items)), Offers.space(len(items))
    looked_at = _LOOKED_AT
    for item, size in zip(homeless.tolist(), items.size[homeless].tolist(), strict=True):
        while held.room.max() < size:
            emptiest = np.argsort(-held.room, kind="stable")[: _PARTNERS + 1]
            missing = size - int(held.room[emptiest[0]])
            at, looked = improve(held, int(emptiest[0]), emptiest[1:], MAKE_ROOM, missing, mine, others)
            looked_at -= looked
            if at < 0 or looked_at < 0:
                return bins
        add(held, item, int(np.where(held.room >= size, held.room, capacity + 1).argmin()))
    return held.bins
