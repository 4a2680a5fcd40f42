"""The table of the configuration: a row for each key, its parser, its default and its words for the manual.

Imported where `nodectl.config` is.
"""

from __future__ import annotations

import os

from nodectl.config.cgroups import CGROUPS
from nodectl.config.key import Key, section
from nodectl.config.values import (
    ADDRESS,
    CPU_LIST,
    DEVICES,
    HARD_LIMITS,
    INTERFACE,
    JOB_CONTAINER,
    LEVEL,
    NAME,
    NETWORK,
    PATH,
    PLUGIN_DIRS,
    PRIVATE_DIRS,
    PROCTRACK,
    RELEASES,
    SCRIPT,
    SECONDS,
    SOCKET,
    SWITCH,
    TASK_PLUGINS,
    number,
    one_of,
    words,
)
from nodectl.model.confinement_level import DEFAULT, NONE, strictest
from nodectl.plugin_host.loader import BUILTIN_DIR
from nodectl.spank import versions

TYPE_CHECKING = False  # typing's own constant costs the import of typing
if TYPE_CHECKING:
    from collections.abc import Mapping


def _host(values: Mapping[str, object]) -> str:
    return os.uname().nodename.partition(".")[0] or "localhost"


def _default_socket(values: Mapping[str, object]) -> str:
    return os.path.join(str(values["runtime_dir"]), "nodectl.sock")


def _most_tasks(values: Mapping[str, object]) -> int:
    return int(str(values["max_tasks_per_node"]))


_NODE = section(
    "node",
    Key(
        "node_name", NAME, _host,
        "Name of this node: SLURMD_NODENAME, SLURM_NODELIST and %N in file names.",
        shown="the host's name up to its first dot",
    ),
    Key(
        "cluster_name", NAME, "nodectl",
        "What SLURM_CLUSTER_NAME says: for plugins and programs that know clusters by their names.",
    ),
    Key(
        "partition_name", NAME, "local",
        "What SLURM_JOB_PARTITION says: every job is in this partition.",
    ),
)  # fmt: skip

_FILES = section(
    "files",
    Key(
        "runtime_dir", PATH, "/run/nodectl",
        "Directory of sockets and of what may be lost when the machine restarts.",
    ),
    Key(
        "state_dir", PATH, "/var/lib/nodectl",
        "Directory of the history and of what must outlive a restart.",
    ),
    Key(
        "socket", SOCKET, _default_socket,
        "Socket on which the daemon takes requests.",
        shown="nodectl.sock in runtime_dir",
    ),
)  # fmt: skip

_PLUGINS = section(
    "plugins",
    Key(
        "plugin_dir", PLUGIN_DIRS, (BUILTIN_DIR,),
        "Directories in which plugins are looked for, in this order; nodectl's own comes last.",
        shown="nodectl's own plugins only",
    ),
    Key(
        "task_plugin", TASK_PLUGINS, ("task/cgroup", "task/affinity"),
        "Task plugins, in the order in which they are called.",
    ),
    Key(
        "proctrack_type", PROCTRACK, "proctrack/cgroup",
        "Plugin that follows and kills the processes of a step.",
    ),
    Key(
        "job_container_type", JOB_CONTAINER, "job_container/none",
        "Plugin that gives each job what of the machine it has to itself.",
    ),
    Key(
        "plugstack_config", PATH, "/etc/nodectl/plugstack.conf",
        "List of SPANK plugins. A file that is not there is an empty list.",
    ),
    Key(
        "spank_versions", RELEASES, versions.DEFAULT,
        "Releases of Slurm whose compiled SPANK plugins are loaded. Of others nobody knows what their calls mean.",
    ),
    Key(
        "spank_hook_timeout", SECONDS, 60,
        "Seconds a function of a plugin may take before its process is ended.",
    ),
)  # fmt: skip

_BINDING = section(
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
        "Devices that tasks can ask for, a line each as in gres.conf: Name=gpu Type=a File=/dev/nvidia[0-1] Cores=0-7.",
    ),
)  # fmt: skip

_CONTAINERS = section(
    "containers",
    Key(
        "container_base_path", PATH, lambda values: os.path.join(str(values["state_dir"]), "containers"),
        "Directory in which jobs' private directories are stored and their namespaces are held; %h is the host's name, "
        "%n node_name.",
        shown="containers in state_dir",
    ),
    Key(
        "container_auto_base_path", SWITCH, True,
        "Whether container_base_path is made where it is missing.",
    ),
    Key(
        "container_dirs", PRIVATE_DIRS, ("/tmp", "/var/tmp", "/dev/shm"),
        "Directories that each job has to itself. /dev/shm always is a tmpfs.",
    ),
    Key(
        "container_shared", SWITCH, False,
        "Whether what is mounted on the machine later appears in running jobs.",
    ),
    Key(
        "container_namespaces", words("pid", "ipc", "uts", "net", "cgroup", "time", "user"), (),
        "Namespaces that each job has to itself beside that of mounts.",
    ),
    Key(
        "container_net", one_of("none", "veth", "macvlan"), "none",
        "What a job's network namespace has as eth0: nothing, one end of a pair whose other end is a port of the "
        "bridge container_net_parent, or a macvlan of that interface.",
    ),
    Key(
        "container_net_parent", INTERFACE, "",
        "Bridge or interface of this machine to which container_net connects jobs.",
    ),
    Key(
        "container_net_addresses", NETWORK, "",
        "Network of which each eth0 has an address that no other job has; without one it has none.",
    ),
    Key(
        "container_net_gateway", ADDRESS, "",
        "Address of that network which no job is given and which is every job's default route.",
    ),
    Key(
        "container_init_script", SCRIPT, None,
        "Program that runs as root before a job's namespaces are made; the job's step fails if it fails.",
    ),
    Key(
        "container_clone_ns_script", SCRIPT, None,
        "Program that runs as root when they are made, outside of them; SLURM_NS is the path of the mount namespace.",
    ),
    Key(
        "container_clone_ns_epilog", SCRIPT, None,
        "Program that runs as root before they are removed.",
    ),
    Key(
        "container_script_timeout", SECONDS, 10,
        "Seconds after which such a program is killed and counts as failed; 0 for never.",
    ),
)  # fmt: skip

_SECURITY = section(
    "security",
    Key(
        "secure_floor", LEVEL, NONE,
        "Least confinement of any step: a request for less is refused, also root's.",
    ),
    Key(
        "secure", LEVEL, lambda values: strictest(DEFAULT, str(values["secure_floor"])),
        "Confinement of a step that does not ask. none: what a login shell may. default: no set-user-ID programs, no "
        "capabilities but over files and processes, no system calls that no job needs. strict: also no capability, no "
        "namespaces, and writing only in the working directory and temporary ones.",
        shown='"default", or secure_floor where that is more',
    ),
)  # fmt: skip

_LIMITS = section(
    "limits",
    Key(
        "admin_group", NAME, "nodectl",
        "Group whose members may do what root may: see and end everybody's steps, and give them other limits.",
    ),
    Key(
        "max_tasks_per_node", number(1, 65_533, "tasks"), 512,
        "Most tasks of one step.",
    ),
    Key(
        "max_message_bytes", number(65_536, 1 << 30, "bytes"), 8 << 20,
        "Longest request or answer; a longer one ends the connection.",
    ),
    Key(
        "max_connections_per_user", number(1, 65_536, "connections"), 128,
        "Most connections that one user may hold to the daemon.",
    ),
    Key(
        "max_steps_per_user", number(1, 1_000_000, "steps"), 512,
        "Most steps that one user, root excepted, may have running at a time.",
    ),
    Key(
        "max_tasks_per_user", number(1, 10_000_000, "tasks"), lambda values: max(8192, _most_tasks(values)),
        "Most tasks that the running steps of one user, root excepted, may have together.",
        shown="8192, or max_tasks_per_node where that is more",
    ),
    Key(
        "max_step_bytes_per_user", number(1 << 20, 1 << 40, "bytes"), 64 << 20,
        "Most bytes that the files of one user's steps, root excepted, may have together in runtime_dir: programs, "
        "arguments, environments, and room for each record.",
    ),
    Key(
        "task_hard_limits", HARD_LIMITS, (),
        'Hard limits of tasks, as setrlimit(2) counts them: ["NPROC=4096", "CORE=0", "AS=16G"]. NPROC, for which the '
        "kernel counts all processes of a user, MEMLOCK and CORE are otherwise those of process 1, as after a login; "
        "what else is not named is the service's.",
    ),
    Key(
        "user_cache_seconds", SECONDS, 30,
        "Seconds for which what was found out about a user and their groups is used again.",
    ),
)  # fmt: skip

_STEPS = section(
    "steps",
    Key(
        "kill_wait", SECONDS, 30,
        "Seconds between SIGTERM and SIGKILL.",
    ),
    Key(
        "unkillable_step_timeout", SECONDS, 60,
        "Seconds after SIGKILL until a step that is still there is reported as unkillable.",
    ),
    Key(
        "suspend_grace_time", SECONDS, 2,
        "Seconds between SIGTSTP and the freezing of a step that is suspended.",
    ),
    Key(
        "task_prolog", SCRIPT, None,
        "Program that runs as the user before each task.",
    ),
    Key(
        "task_epilog", SCRIPT, None,
        "Program that runs as the user after each task.",
    ),
    Key(
        "prolog", SCRIPT, None,
        "Program that runs as root before the first step of each job; the job is refused if it fails.",
    ),
    Key(
        "epilog", SCRIPT, None,
        "Program that runs as root after the end of each job.",
    ),
    Key(
        "prolog_epilog_timeout", SECONDS, 0,
        "Seconds after which such a program is killed and counts as failed; 0 for never.",
    ),
)  # fmt: skip

_RECORDS = section(
    "records",
    Key(
        "history_limit", number(0, 100_000_000, "steps"), 10_000,
        "Ended steps that are kept in the history. Where there are more, who has more than their share loses their own "
        "oldest.",
    ),
    Key(
        "history_bytes", number(1 << 20, 1 << 50, "bytes"), 512 << 20,
        "Bytes of records and traces that are kept in the history, shared likewise.",
    ),
    Key(
        "log_ended_steps", SWITCH, True,
        "Whether the service's log has a line for each step that ended, which no later step removes.",
    ),
    Key(
        "trace", SWITCH, True,
        "Whether each step records its calls.",
    ),
)  # fmt: skip

KEYS: tuple[Key, ...] = (
    *_NODE,
    *_FILES,
    *_PLUGINS,
    *_BINDING,
    *_CONTAINERS,
    *CGROUPS,
    *_SECURITY,
    *_LIMITS,
    *_STEPS,
    *_RECORDS,
)
