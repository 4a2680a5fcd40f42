"""The tree over the ranks: rank r's parent is (r - 1) // width. Functions of values.

Where ranks are missing, the ranks beneath stand directly beneath the nearest ancestor that is there. Every link goes
from a rank to one of its ancestors, so that there is no circle.
"""

from collections.abc import Iterator

LEADER = -1  # the leader's address, on whichever node the leader runs
ROOT = 0
WIDTH = 16


def parent(rank: int, width: int = WIDTH) -> int:
    """Return the parent of any rank but the root."""
    return (rank - 1) // width


def ancestors(rank: int, width: int = WIDTH) -> Iterator[int]:
    """Yield the ancestors of a rank, from the parent up to the root."""
    while rank > ROOT:
        rank = parent(rank, width)
        yield rank


def beneath(top: int, count: int, width: int = WIDTH) -> Iterator[range]:
    """Yield the ranks beneath `top` in a complete tree, generation by generation, first `top` itself."""
    first, last = top, top
    while first < count:
        yield range(first, min(last + 1, count))
        first, last = first * width + 1, (last + 1) * width


def is_beneath(rank: int, top: int, width: int = WIDTH) -> bool:
    """Return True if `rank` is `top` or stands beneath `top`."""
    while rank > top:
        rank = parent(rank, width)
    return rank == top
