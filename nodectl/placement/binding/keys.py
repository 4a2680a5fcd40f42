"""The configuration keys of binding: units of allocation, binding of tasks, reserved CPUs, devices."""

from __future__ import annotations

from nodectl.model.config.key import Key, section
from nodectl.model.config.values import Parser, number, one_of, string, words


def _cpu_list(value: object) -> str:
    text = string(value)
    if not text.strip():
        return ""
    from nodectl.model import cpu_list  # imported only for a non-empty list

    return cpu_list.format_cpulist(cpu_list.parse_cpulist(text))


def _devices(value: object) -> tuple[str, ...]:
    lines = value if isinstance(value, list) else [value]
    texts = tuple(text for text in map(string, lines) if text.strip())
    if texts:
        from nodectl.placement.machine.declared_devices import declared  # only for a node with declared devices

        declared(texts)
    return texts


CPU_LIST = Parser('CPU numbers and ranges as "0-3,8", or "" for none', _cpu_list)
DEVICES = Parser("lines of words Name=, Type=, File=, Cores=, Count=, Memory=, as a list", _devices)

BINDING = section(
    "binding",
    Key(
        "select_type_parameters",
        words(
            "CR_CPU", "CR_CPU_Memory", "CR_Core", "CR_Core_Memory", "CR_Socket", "CR_Socket_Memory", "CR_Memory",
            "CR_ONE_TASK_PER_CORE", "CR_CORE_DEFAULT_DIST_BLOCK", "CR_Pack_Nodes", "CR_LLN",
        ),
        ("CR_Core_Memory",),
        "What a job is given: whole cores; and how tasks are dealt over sockets that were not chosen.",
    ),
    Key(
        "slurmd_parameters", words("l3cache_as_socket", "numa_node_as_socket", "allow_ecores"), (),
        "What counts as a socket of this machine, and whether its small cores are used.",
    ),
    Key(
        "task_plugin_param",
        words(
            "none", "verbose", "threads", "cores", "sockets", "autobind=none", "autobind=threads", "autobind=cores",
            "autobind=sockets", "SlurmdOffSpec", "SlurmdSpecOverride", "OOMKillStep",
        ),
        (),
        "How tasks are bound whose users do not say.",
    ),
    Key(
        "boards", number(0, 64, "boards"), 0,
        "Boards on which the sockets are, as many on each; 0 for what the firmware says.",
    ),
    Key(
        "cpu_spec_list", CPU_LIST, "",
        "CPUs, in abstract numbers, that are kept for the system: no job is given their cores.",
    ),
    Key(
        "core_spec_count", number(0, 65_535, "cores"), 0,
        "Cores that are kept for the system where cpu_spec_list names none.",
    ),
    Key(
        "gres", DEVICES, ("AutoDetect=sysfs",),
        "Devices that tasks can ask for, a line each as in gres.conf: Name=gpu Type=a File=/dev/nvidia[0-1] Cores=0-7. "
        "Memory=80G lets jobs share a GPU by its memory, and a line Name=shard Count=10 by ten shards of all GPUs.",
    ),
    Key(
        "gpu_sharing", one_of("all", "user", "no"), "all",
        "Whose jobs may share a GPU: all users' jobs, at one time only those of one user, or none.",
    ),
)  # fmt: skip
