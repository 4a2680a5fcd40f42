"""The lines of the verbose reports about a task's binding, in Slurm's format, because scripts cut the lines by columns.

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
    """Return the words for the task in a report line.

    `task` is the number in the step, `local` the number on the node.
    """
    return f"{node}, task {task:2d} {local:2d} [{pid}]"


def cpu_line(kind: str, who: str, *, mask: int, got: int) -> str:
    """Return the report line about the CPUs of a task.

    `kind`: SLURM_CPU_BIND_TYPE; `who`: the words of `subject`; `mask`: the CPUs to bind the task to, 0 for none; `got`:
    the kernel's mask of the task.
    """
    words = kind.rstrip(":").split(",")
    unit = "".join(f"-{word}" for word in words if word in _UNITS)
    way = next((_CPU[word] for word in words if word in _CPU), "MASK" if mask else "NONE")
    action = " set" if mask else ""
    failed = " FAILED" if mask and mask != got else ""
    return f"cpu-bind{unit}={way} - {who}: mask {mask or got:#x}{action}{failed}"


def memory_line(kind: str, who: str, *, prefer: bool, mask: int) -> str:
    """Return the report line about the memory of a task. `kind`: SLURM_MEM_BIND_TYPE; `mask`: NUMA nodes."""
    way = _MEMORY.get(kind.rstrip(":"), "UNK")
    return f"mem-bind{' PREFER ' if prefer else '='}{way} - {who}: mask {mask:#x} set"
