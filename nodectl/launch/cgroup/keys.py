"""The configuration's keys about cgroups: the place of the cgroups, and the constraints of the machine.

Names and arithmetic are those of Slurm's cgroup.conf, in snake case.
"""

from __future__ import annotations

from nodectl.model.config.key import Key, section
from nodectl.model.config.values import LINES, NAME, PERCENT, Parser, absolute, is_plain, lines_of, number, one_of


def _device_names(value: object) -> tuple[str, ...]:
    words = lines_of(value)
    for word in words:
        kind, _, name = word.partition("-")
        if not word.startswith("/dev/") and not (kind in ("char", "block") and name):
            raise ValueError(f"has {word!r}")
    return words


def _scope(value: object) -> str:
    return "" if value == "" else absolute(value)


def _outsiders(value: object) -> tuple[str, ...]:
    names = lines_of(value)
    for name in names:
        if not is_plain(name, "_-.@:"):
            raise ValueError(f"has {name!r}")
    return names


CONSTRAINT = one_of("yes", "no", "auto")
OUTSIDERS = Parser("names of users, and of systemd's services as jupyter.service, as a list", _outsiders)
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

FENCE = section(
    "fence",
    Key(
        "login_memory", MEMORY, 0,
        "Most memory of the login sessions of one user while `nodectl fence` is on; root's have no limit. 0: what "
        "real_memory leaves. The CPUs of logins are those that cpu_spec_list or core_spec_count keep from jobs.",
    ),
    Key(
        "login_weight", WEIGHT, 100,
        "Weight of all login sessions together when they compete with services and jobs for CPU time or a disk.",
    ),
    Key(
        "login_cgroup", SCOPE, "",
        "Cgroup of the login sessions, below the mount of cgroup2; the service makes it. Without: systemd's "
        "user.slice, and /logins where systemd does not run.",
    ),
    Key(
        "login_outside", OUTSIDERS, (),
        "Users beside root whose login sessions are not fenced. These users, and the services named here, may use a "
        "GPU outside of all jobs; users with a uid below 1000 always may.",
    ),
    Key(
        "foreign_gpu_use", one_of("tell", "wait"), "tell",
        "What follows when a user's program outside of all jobs has a device of the key gres open: `nodectl doctor` "
        "and `nodectl fence status` tell, and with wait no job is given the device meanwhile, nor any device before "
        "the service has looked after its start. Programs that only watch a device count, too.",
    ),
)  # fmt: skip
