"""The agent's place: rank, names of all nodes, job, from the environment set by the engine.

Slurm's srun sets its own variables. Another engine sets NODECTL_AGENT to "JOB RANK NODES", NODES as Slurm writes them.
Ranks behind those of the nodes are guests', whose names are in NODECTL_GUESTS: machines with a gateway, and no tasks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nodectl.client import cluster_gateway
from nodectl.client.command import Failed
from nodectl.model.number import whole
from nodectl.model.wire.dispatch import Refused
from nodectl.placement.binding.hostlist import MAX_NODES, expand

AGENT, GUESTS = "NODECTL_AGENT", "NODECTL_GUESTS"
KILL_WAIT = "NODECTL_KILL_WAIT"  # seconds from Slurm's SIGTERM to its SIGKILL, as its configuration says
_MOST_NODES = 1 << 20
_LAST_JOB = 2**32 - 1
_KILL_WAIT = 20  # seconds: most sites keep Slurm's default of thirty
_LONGEST_KILL_WAIT = 1 << 16


@dataclass(frozen=True, slots=True)
class Place:
    """The agent's place. `names`: of all nodes, by rank; `members` includes guests."""

    job: int
    rank: int
    names: Sequence[str]
    guests: Sequence[str] = ()

    @property
    def members(self) -> Sequence[str]:
        """The names of all ranks."""
        return (*self.names, *self.guests)

    @property
    def is_guest(self) -> bool:
        """Whether this machine is a guest."""
        return self.rank >= len(self.names)

    @property
    def name(self) -> str:
        """The name of this machine."""
        return self.members[self.rank]

    @property
    def directory(self) -> str:
        """The name of the agent's directory, by which commands of this node find the gateway."""
        name = cluster_gateway.NO_NODE if self.is_guest else self.name
        return cluster_gateway.name_of({cluster_gateway.CLUSTER: f"{self.job}.{name}"})


def of(variables: Mapping[str, str]) -> Place:
    """Read the place from the environment. Raises Failed."""
    if AGENT in variables:
        job, rank, nodes = (*variables[AGENT].split(" "), "", "", "")[:3]
    else:
        job, rank = variables.get("SLURM_JOB_ID", ""), variables.get("SLURM_NODEID", "")
        nodes = variables.get("SLURM_STEP_NODELIST") or variables.get("SLURM_NODELIST", "")
    number, position = whole(job, _LAST_JOB), whole(rank, _MOST_NODES)
    try:
        names, guests = expand(nodes, MAX_NODES), expand(variables.get(GUESTS, ""))
    except Refused as refused:
        raise Failed(f"the nodes of the agents: {refused}") from None
    if number is None or position is None or position >= len(names) + len(guests):
        raise Failed("an agent is started by `nodectl cluster start`, within an allocation")
    return Place(number, position, names, guests)


def kill_wait(variables: Mapping[str, str]) -> int:
    """Return the longest time in seconds from SIGTERM to SIGKILL for steps.

    At the end of the job Slurm tells agents to end and kills them some time later: by then their steps must have ended
    and their files be removed.
    """
    slurms = whole(variables.get(KILL_WAIT, ""), _LONGEST_KILL_WAIT)
    return _KILL_WAIT if slurms is None else min(_KILL_WAIT, slurms * 2 // 3)
