"""The choice of a job's nodes, and the numbers of tasks and CPUs on each node."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from bitarray import bitarray

from nodectl.selection.records import JobResources, NodeTable
from nodectl.selection.tres.offer import Grant, NodeOffer, offer_of
from nodectl.selection.tres.use import Use
from nodectl.selection.tres.wish import Goal

Found = list[tuple[int, NodeOffer]]
"""Nodes in the order of the table, with what each of them has for the job."""


class Placement:
    """The place of a job: the nodes, and for each node the grant and the number of tasks."""

    __slots__ = ("grants", "nodes", "tasks")

    def __init__(self, nodes: Sequence[int], grants: Sequence[Grant], tasks: Sequence[int]) -> None:
        self.nodes = nodes
        self.grants = grants
        self.tasks = tasks

    def resources(self, table: NodeTable) -> JobResources:
        """Return the placement in the form of a job's record."""
        cores = table.core_bitmap()
        cpus, memory, held = {}, {}, {}
        for node, grant in zip(self.nodes, self.grants, strict=True):
            at = table[node].core_offset
            cores[at : at + len(grant.bits)] = grant.bits
            cpus[node] = grant.cpus
            memory[node] = grant.memory
            if grant.gres:
                held[node] = grant.gres
        tasks = dict(zip(self.nodes, self.tasks, strict=True))
        return JobResources(table.bitmap(self.nodes), cores, cpus, memory, tasks, held)


def place(
    goal: Goal, candidates: bitarray, use_of: Callable[[int], Use], order: Sequence[int] | None, row: int
) -> Placement | None:
    """Find the job's nodes among `candidates`.

    `use_of` returns the use of a node, the same object each time. `order`: all nodes in the order of preference, None
    for the order of the table.
    """
    refused: set[NodeOffer] = set()
    while True:
        nodes = _Nodes(goal, use_of, row, refused)
        chosen = nodes.chosen(candidates, order)
        if not chosen:
            return None
        tasks, cpus = spread([offer for _, offer in chosen], goal)
        grants: list[Grant] = []
        for (_, offer), count in zip(chosen, cpus, strict=True):
            grant = offer.grant(count)
            if grant is None:
                refused.add(offer)
                break
            grants.append(grant)
        else:
            return Placement([node for node, _ in chosen], grants, tasks)


class _Nodes:
    """A choice of nodes. `refused`: offers found to be useless."""

    __slots__ = ("_goal", "_refused", "_row", "_use_of")

    def __init__(self, goal: Goal, use_of: Callable[[int], Use], row: int, refused: set[NodeOffer]) -> None:
        self._goal = goal
        self._use_of = use_of
        self._row = row
        self._refused = refused

    def _offer(self, node: int) -> NodeOffer | None:
        offer = offer_of(self._use_of(node), self._goal.wish, self._row)
        return None if offer in self._refused else offer

    def chosen(self, candidates: bitarray, order: Sequence[int] | None) -> Found:
        """Return as few nodes as possible with enough CPUs, at least as many as requested; none if insufficient."""
        goal = self._goal
        must: Found = []
        for node in goal.required:
            offer = self._offer(node)
            if offer is None:
                return []
            must.append((node, offer))
        required = set(goal.required)
        rest = self._rest(candidates, required, order)
        if goal.contiguous:
            return self._in_a_row(sorted([*must, *rest]), required)
        if goal.least_loaded:
            return self._taken(must, sorted(rest, key=_least_loaded))
        # The first nodes that do; if these are too many, the largest ones.
        found = list(must)
        room = sum(offer.room for _, offer in must)
        for one in () if room >= goal.cpus and len(found) >= goal.wanted else rest:
            found.append(one)
            room += one[1].room
            if room >= goal.cpus and len(found) >= goal.wanted:
                break
        if room < goal.cpus or len(found) < goal.least:
            return []  # all of them are too few
        if not 0 < goal.most < len(found):
            return found if order is None and not must else sorted(found, key=_node)
        every = sorted(self._rest(candidates, required, order), key=_least_loaded)
        return self._taken(must, every)

    def _rest(
        self, candidates: bitarray, required: set[int], order: Sequence[int] | None
    ) -> Iterator[tuple[int, NodeOffer]]:
        """Yield the remaining nodes with an offer, in the order of preference."""
        nodes: Iterable[int] = candidates.search(1)
        if order is not None:
            nodes = (node for node in order if candidates[node])
        wish, row, refused, use_of = self._goal.wish, self._row, self._refused, self._use_of
        key = (wish, row) if row else wish
        for node in nodes:
            use = use_of(node)
            offer = use.offers[key] if key in use.offers else offer_of(use, wish, row)
            if offer is not None and node not in required and offer not in refused:
                yield node, offer

    def _taken(self, must: Found, order: Iterable[tuple[int, NodeOffer]]) -> Found:
        """Return as few nodes as possible, taken in this order."""
        goal = self._goal
        chosen = list(must)
        room = sum(offer.room for _, offer in must)
        if not (len(chosen) >= goal.wanted and room >= goal.cpus):
            for node, offer in order:
                chosen.append((node, offer))
                room += offer.room
                if len(chosen) >= goal.wanted and room >= goal.cpus:
                    break
        if room < goal.cpus or len(chosen) < goal.least or 0 < goal.most < len(chosen):
            return []
        chosen.sort(key=_node)
        return chosen

    def _in_a_row(self, found: Found, required: set[int]) -> Found:
        """Return the shortest sufficient run of consecutive nodes, the first of equal runs."""
        goal = self._goal
        best: Found = []
        begin = room = there = 0
        for end, (node, offer) in enumerate(found):
            if end and found[end - 1][0] != node - 1:
                begin, room, there = end, 0, 0
            room += offer.room
            there += node in required
            while end - begin >= max(goal.wanted, 1) and found[begin][0] not in required:
                less = room - found[begin][1].room
                if less < goal.cpus:
                    break
                begin, room = begin + 1, less
            size = end - begin + 1
            enough = room >= goal.cpus and size >= goal.least and there == len(required)
            if enough and not 0 < goal.most < size and (not best or self._is_better(size, len(best))):
                best = found[begin : end + 1]
        return best

    def _is_better(self, size: int, best: int) -> bool:
        """True where `size` is better: the wanted number of nodes first, and then fewer."""
        wanted = self._goal.wanted
        return (size < wanted, size) < (best < wanted, best) if size >= wanted or best >= wanted else size > best


def _node(one: tuple[int, NodeOffer]) -> int:
    return one[0]


def _least_loaded(one: tuple[int, NodeOffer]) -> int:
    return -one[1].cpus


def spread(offers: Sequence[NodeOffer], goal: Goal) -> tuple[list[int], list[int]]:
    """Return tasks and CPUs of each node: a task each, then tasks on the rest of begun cores, then node by node."""
    size, limit = goal.wish.size, goal.wish.limit
    total = goal.cpus if goal.overcommit else max(-(-goal.cpus // size), goal.floor * len(offers) // size)
    tasks = [1] * len(offers)
    left = total - len(offers)
    for begun_only in (True, False):
        if left <= 0:
            break
        for index, offer in enumerate(offers):
            cpus = offer.cpus
            if begun_only:
                threads = offer.grid.threads
                cpus = min(-(-tasks[index] * size // threads) * threads, cpus)
            room = cpus // size
            more = min((min(room, limit) if limit else room) - tasks[index], left)
            if more > 0:
                tasks[index] += more
                left -= more
    return tasks, [max(count * size, goal.floor) for count in tasks]
