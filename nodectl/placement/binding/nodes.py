"""The choice of a step's nodes among the job's nodes."""

from __future__ import annotations

from collections.abc import Sequence

from nodectl.placement.binding.allocation import Allocation, NodeGrant
from nodectl.placement.binding.entries import shown
from nodectl.placement.binding.no_layout import NoLayout
from nodectl.placement.binding.request import ARBITRARY, LayoutRequest

_MAX_TASKS = 1 << 18  # so that a typing error does not take the machine's memory


def wanted(allocation: Allocation, request: LayoutRequest) -> tuple[int, int]:
    """Return the numbers of nodes and of tasks. Fewer tasks than nodes leave nodes out. Raises NoLayout."""
    have = len(allocation.nodes)
    nodes = request.nodes[0] if request.nodes and not allocation.own else len(set(request.hosts)) or have
    if nodes > have:
        raise NoLayout(f"Only allocated {have} nodes asked for {nodes}", "number of nodes")
    arbitrary = request.distribution is not None and request.distribution.node == ARBITRARY
    ntasks = request.ntasks or len(request.hosts) or nodes * (request.ntasks_per_node or 1)
    if ntasks > _MAX_TASKS:
        raise NoLayout(f"{ntasks} tasks are more than {_MAX_TASKS}")
    if arbitrary and len(request.hosts) != ntasks:
        raise NoLayout(f"You asked for {ntasks} tasks but hostlist specified {len(request.hosts)} nodes")
    if request.nodes and request.nodes[1] > request.nodes[0]:
        nodes = min(request.nodes[1], have)
    nodes = min(nodes, ntasks)
    if (request.relative or 0) + nodes > have:
        raise NoLayout(
            "--relative and --nodes option incompatible with count of allocated nodes"
            f" ({request.relative}+{nodes}>{have})"
        )
    return nodes, ntasks


def chosen(allocation: Allocation, request: LayoutRequest, count: int) -> Sequence[NodeGrant]:
    """Return `count` nodes, in the job's order: the nodes named in the request, then the first further nodes."""
    names = {grant.name for grant in allocation.nodes}
    asked = set(request.nodelist) | set(request.hosts)
    for name in sorted(asked - names):
        raise NoLayout(f"node {shown(name)} is not in the job: {', '.join(sorted(names)[:8])}")
    first = request.relative or 0
    excluded = set(request.exclude)
    candidates = [grant for grant in allocation.nodes[first:] if grant.name not in excluded]
    candidates.sort(key=lambda grant: grant.name not in asked)  # stable: the job's order otherwise
    if len(candidates) < count:
        raise NoLayout(f"{count} nodes asked for, {len(candidates)} can be used")
    taken = {grant.name for grant in candidates[:count]}
    return [grant for grant in allocation.nodes if grant.name in taken]
