"""What a step is to have of its nodes' GPUs, by srun's options and variables.

A step that says nothing has all GPUs of its nodes, as srun's. So variables that say how many the whole job has, say
nothing of a step. What is named on the command line goes before all variables, and these never keep a step from its
nodes. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from nodectl.binding.devices import Wanted, wanted
from nodectl.binding.refused import Refused
from nodectl.model.value_class import dataclass

_COUNTS = ("gpus", "gpus_per_node", "gpus_per_task", "gres")
_OF_JOB = ("gpus", "gpus_per_node")
_MORE = ("gpu_bind", "gres_flags")
_ALL, _FOR_STEP, _FOR_TASK, _FOR_NODE = "all", "step", "task", "node"


@dataclass(frozen=True, slots=True)
class Gpus:
    """`asked`: which ones, and how many; `way`: whether that is for each node, or of what else. `said`: on the command
    line.
    """

    asked: Wanted = Wanted()
    way: str = _ALL
    said: bool = False

    @property
    def is_all(self) -> bool:
        """Whether it is whatever its nodes have."""
        return self.way == _ALL

    def on(self, nodeid: int, nodes: int, ntasks: int) -> int:
        """How many on one of a step's nodes, which has so many of its tasks. Those of all are shared out evenly."""
        if self.way == _FOR_TASK:
            return self.asked.per_task * ntasks
        if self.way == _FOR_STEP:
            return self.asked.count // nodes + (nodeid < self.asked.count % nodes)
        return self.asked.count

    def nodes(self, most: int) -> int:
        """On how many nodes they are at least, where one has no more than `most`."""
        return 1 if self.way == _FOR_NODE else -(-self.asked.count // max(most, 1))


ALL = Gpus()


def read(given: Mapping[str, str], texts: Mapping[str, str], ntasks: int) -> tuple[Gpus, dict[str, str]]:
    """What is asked for; and the options of variables that do not count for this step, as empty ones. `given`: options
    of the command line, `texts`: with those of variables. Raises Refused.
    """
    said = any(given.get(name) for name in _COUNTS)
    dropped = {name: "" for name in _COUNTS if said and name in texts and name not in given}
    try:
        wanted({**texts, **dropped}, ntasks)
    except Refused:
        dropped |= {name: "" for name in (*_COUNTS, *_MORE) if name in texts and name not in given}
    counted = {**texts, **dropped}
    if not said:
        counted |= {name: "" for name in _OF_JOB if name in texts}
    asked = wanted({**counted, "gpu_bind": ""}, ntasks)
    if counted.get("gpus_per_task"):
        way = _FOR_TASK
    elif counted.get("gpus"):
        way = _FOR_STEP
    else:
        way = _FOR_NODE if any(counted.get(name) for name in _COUNTS) else _ALL
    return Gpus(asked, way, said), dropped
