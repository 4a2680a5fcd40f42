"""The configuration's keys about cgroups: where they are, and what of the machine is confined.

Names and arithmetic are those of Slurm's cgroup.conf, in snake case.
"""

from __future__ import annotations

from nodectl.config_key import Key, section
from nodectl.config_values import CONSTRAINT, NAME, PERCENT, number

_MEMORY = number(0, 1 << 40, "MiB")


def _constraint(what: str, default: str, help: str) -> Key:  # noqa: A002 - the column's name
    """yes, no or auto; whoever reads the manual learns it at the first."""
    return Key(f"constrain_{what}", CONSTRAINT, default, help)


CGROUPS = section(
    "cgroups",
    Key(
        "cgroup_name", NAME, "nodectl",
        "Directory in the service's part of the cgroup tree that holds the jobs.",
    ),
    _constraint(
        "cores", "auto",
        "Whether a step is confined to its CPUs and their memory nodes. yes: the service does not start where that is "
        "not possible; auto: it says so.",
    ),
    _constraint("ram_space", "auto", "Whether a step is confined to the memory that it asked for."),
    _constraint("swap_space", "no", "Whether a step's use of swap space is confined."),
    _constraint("processes", "auto", "Whether a job and its steps are confined to max_processes_per_step."),
    Key("real_memory", _MEMORY, 0, "Memory of this machine; 0 for what it has."),
    Key("allowed_ram_space", PERCENT, 100, "Percent of the memory asked for that a step may use."),
    Key("allowed_swap_space", PERCENT, 0, "Percent of the memory asked for that a step may use of swap space."),
    Key("max_ram_percent", PERCENT, 100, "Percent of real_memory that no step may exceed."),
    Key("max_swap_percent", PERCENT, 100, "Percent of real_memory that no step may exceed in swap space."),
    Key("min_ram_space", _MEMORY, 30, "Memory that every step may use."),
    Key(
        "max_processes_per_step", number(0, 1 << 22, "processes"), 0,
        "Most processes and threads of a step; 0 for half of what the kernel can have.",
    ),
)  # fmt: skip
