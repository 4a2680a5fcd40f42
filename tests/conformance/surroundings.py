"""What programs found around them, there and here: variables, limits, umask, niceness and directory.

`DIFFERENCES` are the variables that are there on one side alone, each with its reason. Values that are a machine's or a
run's own are compared by being there.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Probe = Mapping[str, Any]
# Of the harness, the machine or the person; what a login's environment has is the login's.
_PERSONS = {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_CTYPE", "PWD", "MAIL", "SHLVL", "_"}
_PLACES = {"SLURM_SUBMIT_DIR", "SLURM_SUBMIT_HOST", "HOSTNAME"}
# Whose value is a run's or a machine's.
_OWN = _PLACES | {
    "SLURMD_NODENAME", "SLURM_CLUSTER_NAME", "SLURM_JOBID", "SLURM_JOB_ID", "SLURM_JOB_GID", "SLURM_JOB_UID",
    "SLURM_JOB_USER", "SLURM_JOB_NODELIST", "SLURM_NODELIST", "SLURM_STEP_NODELIST", "SLURM_JOB_PARTITION",
    "SLURM_TASK_PID", "SLURM_TOPOLOGY_ADDR", "SLURM_LAUNCH_NODE_IPADDR", "SLURM_SRUN_COMM_HOST",
    "SLURM_SRUN_COMM_PORT", "SLURM_CPUS_ON_NODE", "SLURM_CPU_BIND", "SLURM_CPU_BIND_LIST", "SLURM_JOB_CPUS_PER_NODE",
}  # fmt: skip
# Limits that a scenario has set; others are the machine's.
LIMITS = {"env/rlimits_sbatch": ("NOFILE", "STACK", "CORE", "NPROC")}


@dataclass(frozen=True)
class Variable:
    """A difference: `names`, patterns, are in the environment here (`here`), or there, alone; or their value is another
    one, which `value` makes of theirs.
    """

    scenarios: tuple[str, ...]
    names: tuple[str, ...]
    here: bool
    why: str
    value: Callable[[str], str] | None = None


DIFFERENCES = (
    Variable(("*",), ("SLURM_CONF",), False, "there is no slurm.conf"),
    Variable(("*",), ("SLURM_STEP_LAUNCHER_PORT",), False, "the command listens on no port"),
    Variable(("*",), ("SLURM_WORKING_CLUSTER", "SLURM_NODE_ALIASES"), False, "there is no other cluster"),
    Variable(("*",), ("SLURM_PRIO_PROCESS", "SLURM_GET_USER_ENV", "*_PACK_GROUP_0"), False, "notes of Slurm's own"),
    Variable(("*",), ("NODECTL_JOB_ID", "NODECTL_SOCKET"), True, "they say whose job it is, and where its service is"),
    Variable(("*",), ("HYDRA_LAUNCHER", "OMPI_MCA_*", "PRTE_MCA_*"), True, "mpiexec starts its ranks itself"),
    Variable(("*",), ("SLURM_JOB_START_TIME", "SLURM_JOB_QOS"), True, "today's Slurm sets them"),
    Variable(("*",), ("SLURM_DISTRIBUTION",), True, "the node of these tests shares all of its machine"),
    Variable(("env/full_opts",), ("SLURM_MEM_PER_CPU",), True, "today's Slurm sets it where it was asked for"),
    Variable(("*",), ("TMPDIR",), True, "each task has its own before any program begins"),
    Variable(("env/export_srun_quoted",), ("A",), True, "quotes end with the value", lambda _: "z"),
    Variable(("env/export_*_quoted",), ("Q",), True, "quotes end with the value", lambda text: text.strip("'")),
    Variable(("env/exclusive_steps",), ("SLURM_JOB_NAME",), True, "the command's, as salloc's manual says",
             lambda _: "sh"),
)  # fmt: skip


def variables(probe: Probe) -> dict[str, str]:
    """Those that the service and the person's options decide, with the values that can be compared."""
    told = dict(word.split("=", 1) for word in probe["env"])
    return {name: "" if name in _OWN else value for name, value in told.items() if name not in _PERSONS}


def in_order(probes: Sequence[Probe]) -> list[Probe]:
    """Those of a script first, then by step and task."""
    told = [dict(word.split("=", 1) for word in probe["env"]) for probe in probes]
    places = [(int(one.get("SLURM_STEP_ID", -1)), int(one["SLURM_PROCID"]), number) for number, one in enumerate(told)]
    return [probes[number] for _, _, number in sorted(places)]


def settle(scenario: str, theirs: dict[str, str], ours: dict[str, str]) -> set[tuple[Variable, str]]:
    """Takes out of both what differs on purpose. Returns the rows, with the pattern, that had something to do."""
    used = set()
    for row in DIFFERENCES:
        if not any(fnmatch.fnmatchcase(scenario, pattern) for pattern in row.scenarios):
            continue
        here, there = (ours, theirs) if row.here else (theirs, ours)
        for pattern in row.names:
            for name in [name for name in here if fnmatch.fnmatchcase(name, pattern)]:
                if row.value is not None and ours.get(name) == row.value(theirs[name]) != theirs[name]:
                    del ours[name], theirs[name]
                elif row.value is None and name not in there:
                    del here[name]
                else:
                    continue
                used.add((row, pattern))
    return used


def around(scenario: str, probe: Probe) -> dict[str, object]:
    """What else a process has."""
    limits = {name: probe["limits"][name] for name in LIMITS.get(scenario, ())}
    directory = probe["cwd"] if probe["cwd"] in ("/", "/tmp") else "the client's"
    return {"umask": probe["umask"], "nice": probe["nice"], "limits": limits, "cwd": directory}
