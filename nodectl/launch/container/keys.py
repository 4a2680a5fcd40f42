"""The configuration's keys about job containers."""

from __future__ import annotations

import os

from nodectl.model.config.key import Key, section
from nodectl.model.config.values import (
    PATH,
    SCRIPT,
    SECONDS,
    SWITCH,
    Parser,
    name_of,
    one_of,
    split_words,
    string,
    words,
)


def _private_dirs(value: object) -> tuple[str, ...]:
    from nodectl.launch.container import settings  # imported only where configured

    lines = tuple(split_words(value, " "))
    settings.read_dirs(lines)
    return lines


def _interface(value: object) -> str:
    return name_of(value) if value != "" else ""


def _network(value: object) -> str:
    text = string(value)
    if text:
        import ipaddress  # imported only where configured

        ipaddress.ip_network(text)  # its error is a ValueError that says what is wrong
    return text


def _address(value: object) -> str:
    text = string(value)
    if text:
        import ipaddress

        ipaddress.ip_address(text)
    return text


PRIVATE_DIRS = Parser(
    "absolute paths, each with its options behind ':' and ',' between them: tmpfs, size=, ro, nosuid, nodev, noexec",
    _private_dirs,
)
INTERFACE = Parser('the name of a network interface, or "" for none', _interface)
NETWORK = Parser('a network of addresses as "10.1.0.0/24", or "" for none', _network)
ADDRESS = Parser('an address, or "" for none', _address)

CONTAINERS = section(
    "containers",
    Key(
        "container_base_path", PATH, lambda values: os.path.join(str(values["state_dir"]), "containers"),
        "Directory in which jobs' private directories are stored and their namespaces are held; %h is the host's name, "
        "%n node_name. On the file system of state_dir a user who fills it stops the queue. Without %h "
        "job_container/user has a directory of the host's in it.",
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
