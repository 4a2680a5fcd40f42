"""A step's request for resources of a cluster, and the placement."""

from __future__ import annotations

from dataclasses import dataclass

from nodectl.cluster.leader.gpus import ALL, Gpus
from nodectl.cluster.leader.holding import Held
from nodectl.placement.binding.layout import Layout
from nodectl.placement.binding.request import LayoutRequest


@dataclass(frozen=True, slots=True)
class Wish:
    """A step's request: options, MiB of each node or of each CPU, GPUs, words about the network."""

    request: LayoutRequest
    memory: int = 0
    memory_per_cpu: int = 0
    gpus: Gpus = ALL
    network: str = ""


@dataclass(frozen=True, slots=True)
class Placed:
    """The placement of a step.

    `ranks`: by index of the layout's nodes; `held`: the shares that the step alone holds.
    """

    layout: Layout
    ranks: tuple[int, ...]
    held: Held
