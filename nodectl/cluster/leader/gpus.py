"""A step's GPUs on the nodes, by srun's options and variables.

A step without such options has all GPUs of its nodes, as srun's has. Variables with the count of the whole job
therefore do not count for a step. Options of the command line have precedence over all variables, and variables never
keep a step from its nodes. Pure functions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nodectl.placement.binding.devices import Wanted, wanted
from nodectl.placement.binding.no_layout import NoLayout

_COUNTS = ("gpus", "gpus_per_node", "gpus_per_task", "gres", "gpu_mem")
_OF_JOB = ("gpus", "gpus_per_node")
_MORE = ("gpu_bind", "gres_flags")
_ALL, _FOR_STEP, _FOR_TASK, _FOR_NODE = "all", "step", "task", "node"
_NONE_WANTED = Wanted()


@dataclass(frozen=True, slots=True)
class Gpus:
    """A step's wish for GPUs.

    `asked`: type and count; `way`: the unit that the count is for: each node, each task, the step, or "all" for all
    GPUs. `said`: given on the command line.
    """

    asked: Wanted = _NONE_WANTED
    way: str = _ALL
    said: bool = False

    @property
    def is_all(self) -> bool:
        """Whether the step has all GPUs of the nodes."""
        return self.way == _ALL

    def on(self, nodeid: int, nodes: int, ntasks: int) -> int:
        """Return the count of GPUs on a step's node with `ntasks` tasks.

        A step's total is shared out evenly among the nodes.
        """
        if self.way == _FOR_TASK:
            return self.asked.per_task * ntasks
        if self.way == _FOR_STEP:
            return self.asked.count // nodes + (nodeid < self.asked.count % nodes)
        return self.asked.count

    def nodes(self, most: int) -> int:
        """Return the lowest number of nodes for the GPUs, where a node has no more than `most`."""
        return 1 if self.way == _FOR_NODE else -(-self.asked.count // max(most, 1))


ALL = Gpus()


def read(given: Mapping[str, str], texts: Mapping[str, str], ntasks: int) -> tuple[Gpus, dict[str, str]]:
    """Return the GPUs asked for, and empty options in place of the variables' options without effect on this step.

    `given`: options of the command line; `texts`: the same with those of variables. Raises NoLayout.
    """
    said = any(given.get(name) for name in _COUNTS)
    dropped = {name: "" for name in _COUNTS if said and name in texts and name not in given}
    try:
        wanted({**texts, **dropped}, ntasks)
    except NoLayout:
        dropped |= {name: "" for name in (*_COUNTS, *_MORE) if name in texts and name not in given}
    counted = {**texts, **dropped}
    if not said:
        counted |= {name: "" for name in _OF_JOB if name in texts}
    asked = wanted({**counted, "gpu_bind": ""}, ntasks)
    if asked.is_share:
        raise NoLayout("--gres=shard and --gpu-mem: a cluster of several nodes gives GPUs whole")
    if counted.get("gpus_per_task"):
        way = _FOR_TASK
    elif counted.get("gpus"):
        way = _FOR_STEP
    else:
        way = _FOR_NODE if any(counted.get(name) for name in _COUNTS) else _ALL
    return Gpus(asked, way, said), dropped
