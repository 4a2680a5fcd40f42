"""The request of a launch: checks of form and meaning, the same as in a node's daemon, and the parsed options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from nodectl.cluster.leader import gpus
from nodectl.cluster.leader.wish import Wish
from nodectl.model.fields import YEAR
from nodectl.model.wire.dispatch import Refused, invalid, shaped
from nodectl.model.wire.shape import Optional, boolean, integer
from nodectl.placement.binding.no_layout import NoLayout
from nodectl.placement.binding.options import request_of
from nodectl.placement.binding.request import LayoutRequest
from nodectl.service.request import launch

_OF_THE_LEADER = ("layout", "jobid", "job", "step", "immediate", "no_kill")  # of no use to a node
_REQUEST = {
    **launch.REQUEST,
    "immediate": Optional(integer(0, YEAR)),
    "no_kill": Optional(boolean),
}


class Asked(NamedTuple):
    """A launch request, as read.

    `request`: for the nodes, without the keys for the leader. `numbers`: the requested job and step, -1 for none.
    `immediate`: the longest wait in seconds, None for any time. `alike`: equal for launches with the same needs.
    """

    request: dict[str, Any]
    wish: Wish
    numbers: tuple[int, int]
    immediate: int | None
    no_kill: bool
    alike: tuple[object, ...]


def read(request: object) -> Asked:
    """Read a launch request. Raises `wire.dispatch.Refused`."""
    given: Mapping[str, Any] = shaped(request, _REQUEST)
    if "part" in given:
        raise invalid("part", "the leader says which part of a step a node runs")
    launch.check_meaning(given, int(given["ntasks"]))
    try:
        texts = {name: str(text) for name, text in launch.options_of(given).items()}
        devices, dropped = gpus.read(given.get("layout", {}), texts, int(given["ntasks"]))
        texts |= dropped
        wish = _wish(given, _in_an_allocation(request_of(texts, {}, texts.get("hostfile", ""))), devices)
        wish = replace(wish, network=texts["network"]) if "network" in texts else wish
    except NoLayout as error:
        raise Refused("InvalidRequest", error.reason, parameter="layout") from None
    numbers = (int(given.get("jobid", given.get("job", -1))), int(given.get("step", -1)))
    told = {name: value for name, value in given.items() if name not in _OF_THE_LEADER}
    if dropped:
        told["layout"] = {**given.get("layout", {}), **dropped}  # otherwise nodes would read the variables
    alike = (wish.memory, wish.memory_per_cpu, devices.said, *sorted(texts.items()))
    return Asked(told, wish, numbers, given.get("immediate"), bool(given.get("no_kill")), alike)


def _wish(given: Mapping[str, Any], request: LayoutRequest, devices: gpus.Gpus) -> Wish:
    if "mem" in given and "mem_per_cpu" in given:
        raise invalid("mem", "it and --mem-per-cpu are mutually exclusive")
    return Wish(request, int(given.get("mem", 0)), int(given.get("mem_per_cpu", 0)), devices)


def _in_an_allocation(request: LayoutRequest) -> LayoutRequest:
    """Return the request with the rules of a step in an allocation.

    Each step holds its CPUs for itself; --exclusive means just this, as for srun. --whole asks for whole nodes.
    Overcommitted tasks share the free CPUs of their nodes.
    """
    return replace(request, exclusive=request.whole, exact=not request.whole and not request.overcommit)
