"""The lines of the verbose reports about a task's binding, in Slurm's format; scripts cut them by columns.

Pure; made in the tasks, so nothing is imported here.
"""

from __future__ import annotations

_UNITS = ("threads", "cores", "sockets", "ldoms")
# The blanks behind some words are Slurm's.
_CPU = {
    "none": "NONE",
    "map_cpu": "MAP ",
    "mask_cpu": "MASK",
    "rank_ldom": "LDRANK",
    "map_ldom": "LDMAP ",
    "mask_ldom": "LDMASK",
    "rank": "RANK",
}
_MEMORY = {"rank": "RANK", "local": "LOC", "map_mem": "MAP", "mask_mem": "MASK"}


def subject(node: str, task: int, local: int, pid: int) -> str:
    """Who a line is about: `task` is its number in the step, `local` on the node."""
    return f"{node}, task {task:2d} {local:2d} [{pid}]"


def cpu_line(kind: str, who: str, *, mask: int, got: int) -> str:
    """About the CPUs of the task `who`. `kind`: SLURM_CPU_BIND_TYPE; `mask`: what it was to be bound to, 0 for
    nothing; `got`: what the kernel says.
    """
    words = kind.rstrip(":").split(",")
    unit = "".join(f"-{word}" for word in words if word in _UNITS)
    way = next((_CPU[word] for word in words if word in _CPU), "MASK" if mask else "NONE")
    action = " set" if mask else ""
    failed = " FAILED" if mask and mask != got else ""
    return f"cpu-bind{unit}={way} - {who}: mask {mask or got:#x}{action}{failed}"


def memory_line(kind: str, who: str, *, prefer: bool, mask: int) -> str:
    """About the memory of the task `who`. `kind`: SLURM_MEM_BIND_TYPE; `mask`: NUMA nodes."""
    way = _MEMORY.get(kind.rstrip(":"), "UNK")
    return f"mem-bind{' PREFER ' if prefer else '='}{way} - {who}: mask {mask:#x} set"
