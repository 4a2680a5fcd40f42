"""The counterpart of slurmctld's global variables for a select plugin: the configuration, and the time.

The host sets both before each call, so that two plugins in one process, each with a simulated time, find their own
values. A plugin reads them when it is called, and keeps what it needs between two calls of `reconfigure`.
"""

from __future__ import annotations

from nodectl.model.value_class import dataclass, field
from nodectl.placement.binding.request import Settings
from nodectl.selection.keys import DEFAULT_SHARING, MOST_SHARING
from nodectl.selection.records import JobRecord

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nodectl.model.config import Config

NO, YES, FORCE, EXCLUSIVE = "no", "yes", "force", "exclusive"


@dataclass(frozen=True, slots=True)
class Parameters:
    """The configuration of a select plugin.

    `over_subscribe` and `share_count`: which jobs share, and how many at most. `tracks_memory`: memory is given as
    cores are. `def_mem_per_cpu`: MiB for each CPU of a job that names no memory.
    """

    settings: Settings = field(default_factory=Settings)
    over_subscribe: str = NO
    share_count: int = 1
    tracks_memory: bool = True
    def_mem_per_cpu: int = 0

    def sharers(self, job: JobRecord) -> int:
        """Return how many jobs may share the job's cores, the job included."""
        if self.over_subscribe == FORCE or (self.over_subscribe == YES and job.details.share_res):
            return self.share_count
        return 1

    def takes_whole_nodes(self, job: JobRecord) -> bool:
        """True for a job without any sharing of nodes, under each select plugin."""
        if self.over_subscribe == FORCE:
            return False
        return self.over_subscribe == EXCLUSIVE or job.details.share_res is False

    def memory_of(self, job: JobRecord, cpus: int) -> int:
        """Return the MiB taken by the job on a node with `cpus` of the job's CPUs."""
        details = job.details
        return details.pn_min_memory or (details.mem_per_cpu or self.def_mem_per_cpu) * cpus


def parameters_of(config: Config, settings: Settings) -> Parameters:
    """Return the parameters of a configuration; `settings`: the same configuration for the rules of binding."""
    word, _, count = config.over_subscribe.partition(":")
    words = settings.select_type_parameters
    # As Slurm documents it: of the parameters select/linear knows CR_Memory alone.
    memory = "cr_memory" in words if config.select_type == "select/linear" else any("memory" in one for one in words)
    sharing = int(count or DEFAULT_SHARING) if word in (YES, FORCE) else 1
    units = {one.removesuffix("_memory") for one in words} & {"cr_cpu", "cr_core", "cr_socket"}
    if word == NO and "cr_memory" in words and not units and config.select_type == "select/cons_tres":
        word, sharing = FORCE, MOST_SHARING  # memory alone is given: jobs share all cores
    return Parameters(settings, word, sharing, memory, config.def_mem_per_cpu)


class _Current:
    parameters = Parameters()
    now = 0.0


def parameters() -> Parameters:
    """Return the configuration as of this call."""
    return _Current.parameters


def now() -> float:
    """Return the time of this call in seconds since the epoch: the daemon's, or a simulated time."""
    return _Current.now


def enter(in_force: Parameters, at: float) -> None:
    """Set configuration and time for a call of a plugin's function. Only for the host."""
    _Current.parameters, _Current.now = in_force, at
