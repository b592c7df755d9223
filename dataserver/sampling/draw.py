"""Drawing by weight: which source a draw goes to, and how often each was drawn before.

A tree halves the sources, and every node splits its draws between its two sides as evenly as
whole numbers can. Of the first j draws that reach a node, its left side gets

    left(j) = floor((j * p + floor(q / 2)) / q),        p / q = weight of the left / weight of both

so draw j (from 0) goes left if left(j + 1) > left(j), and is number left(j) there; else it goes
right, as number j - left(j). Each split is off its share by half a draw at most, at any j, and
so a source by half a draw for each level of the tree at most.

It is error feedback in closed form: nothing is remembered from draw to draw, any draw costs the
same, and where the stream is cut changes nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

# j * p stays below 2^62 for epochs below 2^40. Shares that are no such fraction are rounded to
# the nearest one, which is off by 2^-22 of the node's draws at the very most.
_MAX_DENOMINATOR = 2**22

# Below this share of the draws a split could round to nothing.
SMALLEST_SHARE = Fraction(1, 2**20)


@dataclass(frozen=True, slots=True)
class _Split:
    """A node; `left` and `right` are the number of a source, or another node."""

    left: "_Split | int"
    right: "_Split | int"
    p: int
    q: int

    def left_count(self, draws: int) -> int:
        return (draws * self.p + self.q // 2) // self.q

    def until_left(self, count: int) -> int:
        """The fewest draws of which `count` (at least 1) go left."""
        return -(-(count * self.q - self.q // 2) // self.p)

    def until_right(self, count: int) -> int:
        """The fewest draws of which `count` (at least 1) go right."""
        return ((count - 1) * self.q + self.q // 2) // (self.q - self.p) + 1


class Draw:
    """Draws among sources by `weights`, one a source; 0 turns a source off, and one at least is not 0.

    No weight but 0 may be below `SMALLEST_SHARE` of their sum.
    """

    def __init__(self, weights: Sequence[Fraction]) -> None:
        self._sources = len(weights)
        self._root = _tree([source for source, weight in enumerate(weights) if weight], weights)
        floats = [float(weight) for weight in weights]
        self._shares = [weight / sum(floats) for weight in floats]
        self._levels, self._drifts = [0] * self._sources, [0.0] * self._sources
        self._bound(self._root, 0, 1.0)

    def counts(self, draws: int) -> list[int]:
        """How many of the first `draws` draws each source gets."""
        counts = [0] * self._sources
        pending = [(self._root, draws)]
        while pending:
            node, count = pending.pop()
            if isinstance(node, int):
                counts[node] = count
            else:
                left = node.left_count(count)
                pending += [(node.left, left), (node.right, count - left)]
        return counts

    def targets(self, draws: int) -> list[float]:
        """How many of the first `draws` draws each source would get if they could be divided."""
        return [draws * share for share in self._shares]

    def errors(self, draws: int) -> list[float]:
        """By how much `counts` is off `targets` at most: half a draw a level, and what the fractions are rounded by."""
        return [level / 2 + draws * drift for level, drift in zip(self._levels, self._drifts, strict=True)]

    def until(self, source: int, count: int) -> int:
        """The fewest draws of which `source`, which is not off, gets `count` (at least 1)."""
        found = _until(self._root, source, count)
        if found is None:
            raise ValueError(f"source {source} has no weight")
        return found

    def _bound(self, node: _Split | int, level: int, share: float) -> None:
        """Note for each source below `node` its level, and how far its share in the tree is off that of its weight."""
        if isinstance(node, int):
            self._levels[node], self._drifts[node] = level, abs(share - self._shares[node])
            return
        self._bound(node.left, level + 1, share * node.p / node.q)
        self._bound(node.right, level + 1, share * (node.q - node.p) / node.q)

    def __call__(self, draws: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Of each of `draws` (int64[n], from 0 on): its source, int32[n], and its number there from 0 on, int64[n]."""
        source = np.empty(len(draws), dtype=np.int32)
        number = np.empty(len(draws), dtype=np.int64)
        pending = [(self._root, np.arange(len(draws)), draws)]
        while pending:
            node, at, draw = pending.pop()
            if isinstance(node, int):
                source[at], number[at] = node, draw
            elif len(at):
                half = node.q // 2
                left = (draw * node.p + half) // node.q
                goes_left = ((draw + 1) * node.p + half) // node.q > left
                pending.append((node.left, at[goes_left], left[goes_left]))
                pending.append((node.right, at[~goes_left], (draw - left)[~goes_left]))
        return source, number


def _tree(sources: list[int], weights: Sequence[Fraction]) -> _Split | int:
    if len(sources) == 1:
        return sources[0]
    middle = len(sources) // 2
    left, right = sources[:middle], sources[middle:]
    weight = sum(weights[source] for source in left)
    share = Fraction(weight, weight + sum(weights[source] for source in right)).limit_denominator(_MAX_DENOMINATOR)
    return _Split(_tree(left, weights), _tree(right, weights), share.numerator, share.denominator)


def _until(node: _Split | int, source: int, count: int) -> int | None:
    if isinstance(node, int):
        return count if node == source else None
    left = _until(node.left, source, count)
    if left is not None:
        return node.until_left(left)
    right = _until(node.right, source, count)
    return None if right is None else node.until_right(right)
