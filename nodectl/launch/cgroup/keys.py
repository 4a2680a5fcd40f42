"""The configuration's keys about cgroups: the place of the cgroups, and the constraints of the machine.

Names and arithmetic are those of Slurm's cgroup.conf, in snake case.
"""

from __future__ import annotations

from nodectl.model.config.key import Key, section
from nodectl.model.config.values import LINES, NAME, PERCENT, Parser, absolute, lines_of, number, one_of


def _device_names(value: object) -> tuple[str, ...]:
    words = lines_of(value)
    for word in words:
        kind, _, name = word.partition("-")
        if not word.startswith("/dev/") and not (kind in ("char", "block") and name):
            raise ValueError(f"has {word!r}")
    return words


def _scope(value: object) -> str:
    return "" if value == "" else absolute(value)


CONSTRAINT = one_of("yes", "no", "auto")
DEVICE_NAMES = Parser("paths and patterns below /dev, char-NAME and block-NAME, as a list", _device_names)
SCOPE = Parser('the absolute path of a cgroup, or "" for none', _scope)
MEMORY = number(0, 1 << 40, "MiB")
WEIGHT = number(1, 10_000, "parts")

CGROUPS = section(
    "cgroups",
    Key(
        "cgroup_name", NAME, "nodectl",
        "Directory in the service's part of the cgroup tree that holds the jobs.",
    ),
    Key(
        "slurm_scope", SCOPE, "",
        "Where Slurm has the cgroups of its jobs, below the mount of cgroup2, %n for the node's name: "
        "/system.slice/slurmstepd.scope as a rule. Agents in such a job may then have steps of their cluster run by "
        "this service, within the job's cgroup. Without: by nodes of their own. Only one service of a machine may "
        "have it: what it does not know of its own there it removes.",
    ),
    Key(
        "constrain_cores", CONSTRAINT, "auto",
        "Whether a step is confined to its CPUs and their memory nodes. yes: the service does not start where that is "
        "not possible; auto: it says so.",
    ),
    Key(
        "constrain_ram_space", CONSTRAINT, "auto",
        "Whether a step is confined to the memory that it asked for.",
    ),
    Key(
        "constrain_swap_space", CONSTRAINT, "no",
        "Whether a step's use of swap space is confined.",
    ),
    Key(
        "constrain_processes", CONSTRAINT, "auto",
        "Whether a job and its steps are confined to max_processes_per_step.",
    ),
    Key(
        "constrain_cpu_time", CONSTRAINT, "auto",
        "Whether jobs share CPU time by weight, and have no more of it than they may.",
    ),
    Key(
        "constrain_io", CONSTRAINT, "auto",
        "Whether jobs share disks by weight, and use them no faster than they may.",
    ),
    Key(
        "constrain_gpu_memory", CONSTRAINT, "auto",
        "Whether a job's part of a GPU's memory is a limit (dmem of Linux 6.14) or only counted.",
    ),
    Key(
        "constrain_devices", CONSTRAINT, "auto",
        "Whether a job may open, of the devices of the key gres, only those that it holds.",
    ),
    Key(
        "real_memory", MEMORY, 0,
        "Memory of this machine; 0 for what it has.",
    ),
    Key(
        "allowed_ram_space", PERCENT, 100,
        "Percent of the memory asked for that a step may use.",
    ),
    Key(
        "allowed_swap_space", PERCENT, 0,
        "Percent of the memory asked for that a step may use of swap space.",
    ),
    Key(
        "max_ram_percent", PERCENT, 100,
        "Percent of real_memory that no step may exceed.",
    ),
    Key(
        "max_swap_percent", PERCENT, 100,
        "Percent of real_memory that no step may exceed in swap space.",
    ),
    Key(
        "min_ram_space", MEMORY, 30,
        "Memory that every step may use.",
    ),
    Key(
        "max_processes_per_step", number(0, 1 << 22, "processes"), 0,
        "Most processes and threads of a step; 0 for half of what the kernel can have. Users may ask for less.",
    ),
    Key(
        "cpu_weight", WEIGHT, 100,
        "Weight of a job when jobs compete for CPU time; users may ask for less.",
    ),
    Key(
        "cpu_max", number(0, 10_000_000, "percent"), 0,
        "Most CPU time of a job, in percent of one CPU; 0 for all there is. Users may ask for less.",
    ),
    Key(
        "io_weight", WEIGHT, 100,
        "Weight of a job when jobs compete for a disk; users may ask for less.",
    ),
    Key(
        "io_max", LINES, (),
        "Most input and output of a job, a line for each disk: /dev/vda:rbps=100M,wbps=50M,riops=1000,wiops=1000. "
        "Users may ask for less.",
    ),
    Key(
        "hugetlb_max", LINES, (),
        "Most memory in huge pages of a step, a line for each size, as 2MB:1G. The service does not start where that "
        "cannot be kept. Users may ask for less.",
    ),
    Key(
        "allowed_devices", DEVICE_NAMES, (),
        "Devices that steps may open beside those of their job: paths, patterns of paths, and char-NAME or block-NAME "
        "for a driver in /proc/devices. Terminals, null, zero, full, random and urandom always are. Without any: all.",
    ),
)  # fmt: skip
