"""The tree over the ranks: rank r's parent is (r - 1) // width. Functions of values.

Where ranks are missing, others stand directly beneath the nearest ancestor that is there. Every link goes from a rank
to one of its ancestors, so that there is no circle.
"""

from collections.abc import Container, Iterator

LEADER = -1  # an address of its own, wherever the leader lives
ROOT = 0
WIDTH = 16


def parent(rank: int, width: int = WIDTH) -> int:
    """Of any rank but the root."""
    return (rank - 1) // width


def ancestors(rank: int, width: int = WIDTH) -> Iterator[int]:
    """From the parent up to the root."""
    while rank > ROOT:
        rank = parent(rank, width)
        yield rank


def children(rank: int, count: int, width: int = WIDTH) -> range:
    """Where all of `count` ranks are there."""
    return range(min(rank * width + 1, count), min((rank + 1) * width + 1, count))


def beneath(top: int, count: int, width: int = WIDTH) -> Iterator[range]:
    """All that stand beneath a rank where all are there, generation by generation, itself first."""
    first, last = top, top
    while first < count:
        yield range(first, min(last + 1, count))
        first, last = first * width + 1, (last + 1) * width


def nearest(rank: int, there: Container[int], width: int = WIDTH) -> int | None:
    """The nearest ancestor that is there."""
    return next((one for one in ancestors(rank, width) if one in there), None)


def is_beneath(rank: int, top: int, width: int = WIDTH) -> bool:
    """True for `top` itself, too."""
    while rank > top:
        rank = parent(rank, width)
    return rank == top
