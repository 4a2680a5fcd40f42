"""The processes that copy a step's streams."""

from __future__ import annotations

import os
from pathlib import Path

from nodectl.launch.cgroup import tree
from rootful.node import Node, wait_until


def relay_of(node: Node) -> int:
    """The one process beside the stepd in its cgroup."""
    stepd = next(pid for pid, name in node.processes() if name.startswith("stepd"))
    group = tree.Group(os.path.dirname(next(iter(Path(node.base).glob("job_*/step_0/stepd/cgroup.procs")))))
    found: list[int] = []

    def is_alone() -> bool:
        found[:] = [pid for pid in group.pids() if parent_of(pid) == stepd]
        return len(found) == 1

    wait_until(is_alone, "there is a relay")
    return found[0]


def parent_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(") ")[2].split()[1])
    except OSError:
        return 0
