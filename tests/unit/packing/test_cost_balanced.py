"""`cost_balanced` by hand: its published rule, step by step, on a few samples.

Longest first; the first `target` samples open a bin each, the others go to the cheapest bin with room, or open one;
kept if that takes no more rounds than first-fit; the costliest bins are split, of equal ones the last; ranks by
differencing.
"""

import numpy as np
import pytest

from dataserver.packing.pack import CostModel, pack
from dataserver.packing.placement import Items
from dataserver.packing.rank_sums import split_costliest
from dataserver.run_spec import PackingPolicy

VECTORS = [
    # 15 tokens into 2 bins: 6 | 5, and 4 to the cheaper one. First-fit would give 6 4 | 5.
    ([6, 5, 4], 2, [[[6]], [[5, 4]]]),
    # 6 | 4, 4 to the cheaper, 3 to the 6, and the last 3 needs a third bin: first-fit's 6 4 | 4 3 3 is kept.
    ([6, 4, 4, 3, 3], 2, [[[6, 4]], [[4, 3, 3]]]),
    # 20 tokens into 2 bins: 6 | 6 | 6 after all, 1 to the first, 1 to the second: 7 7 6. A fourth bin by splitting a 7
    # into 6 and 1. Differencing 7 6 | 6 1 joins 6 with 6, and 7 with 1.
    ([6, 6, 6, 1, 1], 2, [[[6], [6]], [[6, 1], [1]]]),
    # One bin would do, target is 4: everyone its own.
    ([3, 3, 2, 2], 4, [[[3]], [[3]], [[2]], [[2]]]),
    # 8 | 4 | 4: of the three samples that opened one the cheapest gets the 3, then the other the 2; 2 to the 6 again.
    ([8, 4, 4, 3, 2, 2], 3, [[[8]], [[4, 3]], [[4, 2, 2]]]),
]


@pytest.mark.parametrize(("lengths", "ranks", "expected"), VECTORS)
def test_the_rule_by_hand(lengths, ranks, expected):
    lengths = np.array(lengths)
    rounds = pack(
        lengths, dp_world_size=ranks, capacity=10, alignment=1, policy=PackingPolicy.COST_BALANCED, cost=CostModel(1, 0)
    )
    of_ranks = [
        [sorted(lengths[bin_].tolist(), reverse=True) for bin_ in rank if len(bin_)]
        for rank in zip(*rounds, strict=True)
    ]
    assert sorted(of_ranks) == sorted(expected)


def test_of_equally_costly_bins_the_last_is_split():
    sizes = np.array([6, 5, 5, 2, 2, 1])
    items = Items(index=np.arange(6), size=sizes, cost=sizes)
    # Three bins of 7: 6 1 | 5 2 | 5 2; the third falls into 5 and 2, and next the second.
    bins = np.array([0, 1, 2, 1, 2, 0])
    assert split_costliest(items, bins, 4).tolist() == [0, 1, 2, 1, 3, 0]
    assert split_costliest(items, bins, 5).tolist() == [0, 1, 2, 4, 3, 0]
