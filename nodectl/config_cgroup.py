"""The configuration's keys about cgroups: where they are, and what of the machine is confined.

Names and arithmetic are those of Slurm's cgroup.conf, in snake case.
"""

from __future__ import annotations

from nodectl.config_key import Key
from nodectl.config_values import CONSTRAINT, NAME, PERCENT, number

CGROUP_KEYS: tuple[Key, ...] = (
    Key(
        "cgroup_name", "cgroups", NAME, "nodectl",
        "Directory in the service's part of the cgroup tree that holds the jobs.",
    ),
    Key(
        "constrain_cores", "cgroups", CONSTRAINT, "auto",
        "Whether a step is confined to its CPUs and their memory nodes. yes: the service does not start where that is "
        "not possible; auto: it says so.",
    ),
    Key(
        "constrain_ram_space", "cgroups", CONSTRAINT, "auto",
        "Whether a step is confined to the memory that it asked for.",
    ),
    Key(
        "constrain_swap_space", "cgroups", CONSTRAINT, "no",
        "Whether a step's use of swap space is confined.",
    ),
    Key(
        "constrain_processes", "cgroups", CONSTRAINT, "auto",
        "Whether a job and its steps are confined to max_processes_per_step.",
    ),
    Key(
        "real_memory", "cgroups", number(0, 1 << 40, "MiB"), 0,
        "Memory of this machine; 0 for what it has.",
    ),
    Key(
        "allowed_ram_space", "cgroups", PERCENT, 100,
        "Percent of the memory asked for that a step may use.",
    ),
    Key(
        "allowed_swap_space", "cgroups", PERCENT, 0,
        "Percent of the memory asked for that a step may use of swap space.",
    ),
    Key(
        "max_ram_percent", "cgroups", PERCENT, 100,
        "Percent of real_memory that no step may exceed.",
    ),
    Key(
        "max_swap_percent", "cgroups", PERCENT, 100,
        "Percent of real_memory that no step may exceed in swap space.",
    ),
    Key(
        "min_ram_space", "cgroups", number(0, 1 << 40, "MiB"), 30,
        "Memory that every step may use.",
    ),
    Key(
        "max_processes_per_step", "cgroups", number(0, 1 << 22, "processes"), 0,
        "Most processes and threads of a step; 0 for half of what the kernel can have.",
    ),
)  # fmt: skip
