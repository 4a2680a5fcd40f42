"""The lookup of the cluster of the surrounding allocation: the socket of the agent on the command's machine.

Lean; imported only within an allocation. The directory and its parent belong to the user alone.
"""

import posix as os
from typing import TYPE_CHECKING

from nodectl.client.command import environ
from nodectl.model.config import own_node
from nodectl.model.number import whole

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from nodectl.client.command import GlobalOptions
    from nodectl.client.run_options import Parsed

CLUSTER = "NODECTL_CLUSTER"  # JOB.NODE, where no variables of Slurm's say it
NO_NODE = "-"  # a machine that is none of the cluster's nodes, but has a gateway: where salloc was typed
_OF_JOB = ("SLURM_NNODES", "SLURM_JOB_NUM_NODES")
_MOST = 1_000_000
_LONGEST = 40  # characters of a name: a socket's path has room for 107


def name_of(variables: "Mapping[str, str]") -> str:
    """Return the name of the directory, made of the job and the node; "" outside of allocations."""
    if CLUSTER in variables:
        name = variables[CLUSTER]
    else:
        name = f"{variables.get('SLURM_JOB_ID', '')}.{variables.get('SLURMD_NODENAME') or NO_NODE}"
    if name.startswith(".") or name.endswith(".") or "/" in name:
        return ""
    if len(name) <= _LONGEST:
        return name
    from zlib import crc32  # few nodes have such names

    return f"{name[: _LONGEST - 9]}-{crc32(name.encode('utf-8', 'surrogateescape')):08x}"


def is_missing(settings: "GlobalOptions") -> bool:
    """Return True inside an allocation of Slurm's without a cluster yet."""
    variables = environ()
    job = variables.get("SLURM_JOB_ID", "")
    return (
        not settings.socket
        and not settings.config
        and os.geteuid() != 0
        and job.isdecimal()
        and job != variables.get("NODECTL_JOB_ID")  # tasks of nodectl's own jobs have these variables, too
        and CLUSTER not in variables
        and bool(variables.get("SLURM_JOB_NODELIST"))
        and not socket()
    )


def fit(request: "dict[str, Any]", parsed: "Parsed", patience: "int | None") -> None:
    """Change the request for several nodes: set the number of nodes, and so of tasks, where the command line does not.

    Also set the fields which only the leader can use.
    """
    variables = environ()
    layout: dict[str, str] = dict(request.get("layout", ()))
    given = "ntasks" in parsed.values or any(variables.get(name) for name in ("SLURM_NTASKS", "SLURM_NPROCS"))
    if "nodes" not in layout and "hostfile" not in layout:
        layout["nodes"] = _nodes(layout, variables, int(request["ntasks"]) if given else 0)
    if not given and "hostfile" not in layout:
        each = whole(layout.get("ntasks_per_node") or variables.get("SLURM_NTASKS_PER_NODE", ""), _MOST) or 1
        least = layout["nodes"].partition("-")[0]  # the leader refuses anything but a number
        request["ntasks"] = each * (whole(least, _MOST) or 1)
    request["layout"] = layout
    if patience is not None:
        request["immediate"] = patience
    if parsed.no_kill or request.get("bulk"):  # its commands begin again elsewhere
        request["no_kill"] = True


def _nodes(layout: "Mapping[str, str]", variables: "Mapping[str, str]", ntasks: int) -> str:
    """Return the number of nodes as srun does: the named nodes, or all of the job, but no more than tasks."""
    if "nodelist" in layout:
        from nodectl.placement.binding.hostlist import expand

        count = len(expand(layout["nodelist"]))
    else:
        count = next((n for name in _OF_JOB if (n := whole(variables.get(name, ""), _MOST))), 1)
    return str(min(count, ntasks) if ntasks else count)


def slots(nodes: str, each: int) -> int:
    """Return the number of commands to run at a time on the nodes, or on all of the job, by the CPUs available."""
    variables = environ()
    here = len(os.sched_getaffinity(0))  # which posix has, too
    counts: list[int] = []
    for word in variables.get("SLURM_JOB_CPUS_PER_NODE", "").split(","):
        cpus, _, times = word.partition("(x")
        counts += [whole(cpus, _MOST) or here] * (whole(times.rstrip(")"), _MOST) or 1)
    of_job = next((n for name in _OF_JOB if (n := whole(variables.get(name, ""), _MOST))), 1)
    wanted = whole(nodes.partition("-")[0], _MOST) or of_job
    counts += [counts[-1]] * (wanted - len(counts))
    return sum(max(1, cpus // each) for cpus in counts[:wanted])


def bases() -> "list[str]":
    """Return the directories which may contain the directory of a cluster. Raises NotOurs.

    The directory of a login session may come and go while a job runs.
    """
    own, temporary = own_node.runtime_dir(), f"/tmp/nodectl-{os.geteuid()}"
    return [own] if own == temporary else [own, temporary]


def socket() -> str:
    """Return the path of the agent's socket, "" where there is none."""
    names = _names(environ())
    try:
        for base in bases():
            for name in names:
                directory = f"{base}/cluster/{name}"
                try:
                    os.stat(f"{directory}/nodectl.sock")
                except OSError:
                    continue
                own_node.must_be_ours(base)
                return f"{directory}/nodectl.sock"
    except own_node.NotOurs:
        pass
    return ""


def _names(variables: "Mapping[str, str]") -> "list[str]":
    """Return the names of the directories which may have the socket.

    Where salloc was typed on a node of the job, no variable says so: the node's name is then the machine's.
    """
    names = [name_of(variables)]
    if CLUSTER not in variables and not variables.get("SLURMD_NODENAME"):
        names.append(name_of({**variables, "SLURMD_NODENAME": os.uname().nodename}))
    return [name for name in names if name]
