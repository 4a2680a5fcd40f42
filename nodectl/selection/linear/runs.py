"""The choice of whole nodes in a row: as few runs of neighbours as possible, among equal choices the best fit.

Pure functions of bitmaps and counts. A choice costs as much as there are runs and chosen nodes, not what the table has.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate
from operator import attrgetter

from bitarray import bitarray

from nodectl.model.value_class import dataclass

_ONE = bitarray("1")


class Amounts:
    """CPUs by node, and of any run of nodes at once.

    `same`: the CPUs of each node where all are equal; otherwise `each`.
    """

    __slots__ = ("_sums", "each", "same")

    def __init__(self, same: int, each: Sequence[int] | None = None) -> None:
        self.same = same
        self.each = each
        self._sums = None if each is None else [0, *accumulate(each)]

    def of(self, node: int) -> int:
        """Return the CPUs of a node."""
        return self.same if self.each is None else self.each[node]

    def between(self, low: int, high: int) -> int:
        """Return the CPUs of the nodes from `low` to before `high`."""
        return (high - low) * self.same if self._sums is None else self._sums[high] - self._sums[low]

    def up_to(self, low: int, cpus: int) -> int:
        """Return the end of the shortest run from `low` on with `cpus` CPUs, perhaps beyond the last node."""
        if cpus <= 0:
            return low
        if self._sums is None:
            return low + -(-cpus // self.same) if self.same else 1 << 60
        return bisect_left(self._sums, self._sums[low] + cpus, low)


@dataclass(slots=True)
class NodeWish:
    """The requested nodes: `min_nodes` to `max_nodes` nodes, best `req_nodes`, with `cpus` in all."""

    min_nodes: int
    max_nodes: int
    req_nodes: int
    cpus: int
    required: bitarray | None = None
    contiguous: bool = False


@dataclass(slots=True)
class _Run:
    low: int
    high: int
    cpus: int


class _Search:
    """The state of a search: the chosen nodes, and the nodes and CPUs still missing."""

    __slots__ = ("amounts", "chosen", "cpus", "nodes", "room")

    def __init__(self, wish: NodeWish, amounts: Amounts, size: int) -> None:
        self.amounts = amounts
        self.chosen = bitarray(size)
        self.nodes = max(wish.req_nodes, wish.min_nodes)
        self.cpus = wish.cpus
        self.room = wish.max_nodes

    @property
    def done(self) -> bool:
        return self.nodes <= 0 and self.cpus <= 0

    def suffices(self, run: _Run) -> bool:
        return run.high - run.low >= self.nodes and run.cpus >= self.cpus

    def add(self, low: int, high: int) -> None:
        """Take the missing nodes of this run, from the low end, as far as allowed."""
        end = min(high, max(low + self.nodes, self.amounts.up_to(low, self.cpus)), low + self.room)
        if end > low:
            self.chosen[low:end] = 1
            self._less(end - low, self.amounts.between(low, end))

    def add_down(self, low: int, high: int) -> None:
        """Take the missing nodes of this run, from the high end, as far as allowed."""
        node = high
        while node > low and not self.done and self.room > 0:
            node -= 1
            self.chosen[node] = 1
            self._less(1, self.amounts.of(node))

    def _less(self, nodes: int, cpus: int) -> None:
        self.nodes -= nodes
        self.room -= nodes
        self.cpus -= cpus


def choose(avail: bitarray, amounts: Amounts, wish: NodeWish) -> bitarray | None:
    """Return the nodes for this wish out of `avail`, nodes with CPUs; None where `avail` does not suffice."""
    required = wish.required
    if required is not None and (required & ~avail).any():
        return None
    if wish.contiguous:
        return _contiguous(avail, amounts, wish)
    search = _Search(wish, amounts, len(avail))
    runs = list(_runs(avail, amounts))
    if required is not None:
        for node in required.search(_ONE):
            _must(search, node)
        runs = _around(search, runs, required)
    _fill(search, runs)
    if _enough(search, wish):
        return search.chosen
    return _biggest(avail, amounts, wish) if amounts.each is not None else None


def _must(search: _Search, node: int) -> None:
    """Take a node, whether still needed or not."""
    search.chosen[node] = 1
    search._less(1, search.amounts.of(node))


def _enough(search: _Search, wish: NodeWish) -> bool:
    count = search.chosen.count()
    return search.cpus <= 0 and wish.min_nodes <= count <= wish.max_nodes


def _runs(avail: bitarray, amounts: Amounts) -> Iterator[_Run]:
    low = avail.find(1)
    while low >= 0:
        high = avail.find(0, low)
        if high < 0:
            high = len(avail)
        yield _Run(low, high, amounts.between(low, high))
        low = avail.find(1, high)


def _around(search: _Search, runs: list[_Run], required: bitarray) -> list[_Run]:
    """Take nodes from the runs with required nodes, best fit first: from the required node up, then down.

    Returns the other runs.
    """
    with_required = [run for run in runs if required.find(1, run.low, run.high) >= 0]
    while with_required and not search.done:
        run = _best(search, with_required)
        with_required.remove(run)
        first = required.find(1, run.low, run.high)
        for low, high in _gaps(required, first, run.high):
            search.add(low, high)
        search.add_down(run.low, first)
    return [run for run in runs if required.find(1, run.low, run.high) < 0]


def _gaps(taken: bitarray, low: int, high: int) -> Iterator[tuple[int, int]]:
    """Yield the runs of untaken nodes between `low` and `high`."""
    at = taken.find(0, low, high)
    while at >= 0:
        end = taken.find(1, at, high)
        end = high if end < 0 else end
        yield at, end
        at = taken.find(0, end, high)


def _best(search: _Search, runs: Sequence[_Run]) -> _Run:
    """Return the tightest sufficient run, else the largest run; the first of equal runs."""
    enough = [run for run in runs if search.suffices(run)]
    return min(enough, key=attrgetter("cpus")) if enough else max(runs, key=attrgetter("cpus"))


def _fill(search: _Search, runs: list[_Run]) -> None:
    """Take the largest runs until a single run suffices for the rest, then the tightest such run."""
    runs = sorted(runs, key=attrgetter("cpus"), reverse=True)  # stable: the first of those that are alike
    longest = max((run.high - run.low for run in runs), default=0)
    for place, run in enumerate(runs):
        if search.done or search.room <= 0:
            return
        if longest >= search.nodes and run.cpus >= search.cpus:
            enough = [one for one in runs[place:] if search.suffices(one)]
            if enough:
                tightest = min(enough, key=attrgetter("cpus"))
                search.add(tightest.low, tightest.high)
                return
        search.add(run.low, run.high)


def _contiguous(avail: bitarray, amounts: Amounts, wish: NodeWish) -> bitarray | None:
    """Find nodes in a single run with every required node; the tightest such run."""
    required = wish.required
    first, last = (-1, -1) if required is None else (required.find(1), required.find(1, right=True))
    best: bitarray | None = None
    least = 0
    for run in _runs(avail, amounts):
        if first >= 0 and not run.low <= first <= last < run.high:
            continue
        if run.high - run.low < wish.min_nodes or run.cpus < wish.cpus or (best is not None and run.cpus >= least):
            continue
        found = _window(run, amounts, wish, first, last)
        if found is not None:
            best, least = bitarray(len(avail)), run.cpus
            best[found[0] : found[1]] = 1
    return best


def _window(run: _Run, amounts: Amounts, wish: NodeWish, first: int, last: int) -> tuple[int, int] | None:
    """Return the place inside of a run: from the low end, or from the first required node up, and then down."""
    nodes = min(max(wish.req_nodes, wish.min_nodes), run.high - run.low)
    low = run.low if first < 0 else first
    end = min(max(low + nodes, amounts.up_to(low, wish.cpus), last + 1), run.high)
    while low > run.low and (end - low < nodes or amounts.between(low, end) < wish.cpus):
        low -= 1
    fits = end - low <= wish.max_nodes and end - low >= wish.min_nodes and amounts.between(low, end) >= wish.cpus
    return (low, end) if fits else None


def _biggest(avail: bitarray, amounts: Amounts, wish: NodeWish) -> bitarray | None:
    """Choose the biggest nodes first, where nodes differ and the best fitting nodes are too small."""
    search = _Search(wish, amounts, len(avail))
    required = wish.required
    for node in required.search(_ONE) if required is not None else ():
        _must(search, node)
    rest = avail if required is None else avail & ~required
    for node in sorted(rest.search(_ONE), key=amounts.of, reverse=True):
        if search.done or search.room <= 0:
            break
        _must(search, node)
    return search.chosen if _enough(search, wish) else None
