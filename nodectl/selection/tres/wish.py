"""A job's request with the configuration's defaults: for each node (`Wish`), and in all (`Goal`)."""

from __future__ import annotations

from nodectl.model.device_part import ANYONE
from nodectl.model.value_class import dataclass
from nodectl.placement.binding.devices import Wanted, of_gres
from nodectl.placement.binding.geometry import given
from nodectl.placement.binding.request import BLOCK, PLANE, Distribution, LayoutRequest, Settings
from nodectl.selection.records import JobDetails, JobRecord
from nodectl.selection.slurmctld import Parameters

CPU, CORE, SOCKET = "cpu", "core", "socket"
_MOST_KEPT = 512


@dataclass(frozen=True, slots=True)
class ConsumableResources:
    """The words of SelectTypeParameters.

    `unit`: the unit of allocation; cores also where only memory is allocated, with many jobs on each core.
    """

    unit: str
    block: bool
    one_task_per_core: bool
    least_loaded: bool

    @classmethod
    def of(cls, settings: Settings) -> ConsumableResources:
        """Make the policy of the settings; cores where the settings name no unit."""
        stems = {word.removesuffix("_memory") for word in settings.select_type_parameters}
        units = [unit for unit in (SOCKET, CORE, CPU) if f"cr_{unit}" in stems]
        return cls(
            units[0] if units else CORE,
            settings.selects("cr_core_default_dist_block"),
            settings.selects("cr_one_task_per_core"),
            settings.selects("cr_lln"),
        )


class Wish:
    """A job's request for each of its nodes.

    Equal wishes are one object, as far as `Wishes` remembers: a node's answer is kept under it. `size`: CPUs of a task;
    `limit`: tasks on a node, 0 for any number; `least` CPUs; `memory` in MiB of a node or `per_cpu`; `gres`: the
    devices, those with a type first; `user`: the job's uid, where it asks for a part of a device; `sharers`: jobs that
    may be on a core, itself included; `whole`: no other job on the node; `system`: cores left to the system; `block`:
    sockets are filled one after the other.
    """

    __slots__ = (
        "block", "enforce", "features", "gres", "least", "limit", "memory", "per_core", "per_cpu", "per_socket",
        "picky", "request", "sharers", "size", "system", "unit", "user", "whole",
    )  # fmt: skip

    def __init__(
        self, request: LayoutRequest, unit: str, size: int, limit: int, least_cpus: int, per_core: int | None,
        memory: int, per_cpu: int, gres: tuple[Wanted, ...], features: frozenset[str], sharers: int, system: int,
        *, block: bool, enforce: bool, whole: bool, user: int,
    ) -> None:  # fmt: skip
        self.request = request
        self.unit = unit
        self.size = size
        self.limit = limit
        self.least = max(least_cpus, size * max(limit, 1))
        self.per_core = per_core
        self.per_socket = given(request.ntasks_per_socket) or 0
        self.memory = memory
        self.per_cpu = per_cpu
        self.gres = gres
        self.features = features
        self.sharers = sharers
        self.system = system
        self.block = block
        self.enforce = enforce
        self.whole = whole
        self.user = user
        # Not any free core will do.
        self.picky = bool(
            self.per_socket or enforce or unit == SOCKET or request.cores_per_socket or request.sockets_per_node
        )


@dataclass(slots=True)
class Goal:
    """A job's request in all.

    `cpus` on at least `least` nodes, on `wanted` where there are so many, on `most` at most (0 for any number).
    `floor`: CPUs of each node at least.
    """

    wish: Wish
    cpus: int
    least: int
    wanted: int
    most: int
    floor: int
    required: list[int]
    contiguous: bool
    least_loaded: bool
    overcommit: bool


class Wishes:
    """The maker of wishes and goals for jobs."""

    def __init__(self, parameters: Parameters) -> None:
        self._parameters = parameters
        self._policy = ConsumableResources.of(parameters.settings)
        self._known: dict[object, Wish] = {}

    def goal(self, job: JobRecord, least: int, most: int, wanted: int, required: list[int]) -> Goal:
        """Return a job's request on so many nodes. Raises Refused for invalid options."""
        details = job.details
        request = details.request
        size = 1 if details.whole else request.cpus_per_task or details.cpus_per_task or 1
        limit = 0 if details.whole else request.ntasks_per_node or 0
        least = max(least, len(required), 1)
        ntasks = request.ntasks or max(details.num_tasks, least * (limit or 1))
        if request.nodes or details.max_nodes or details.min_nodes > 1:
            # Fewer tasks than nodes: a node without a task is not asked for.
            least = max(min(least, ntasks), len(required), 1)
            most = max(min(most, ntasks), len(required), 1)
            wanted = least if request.use_min_nodes else min(wanted, most)
            if limit * least != ntasks:
                limit = 0
        elif limit:
            least = max(least, -(-ntasks // limit))
        overcommit = request.overcommit or details.overcommit or details.whole
        cpus = max(ntasks * size, details.min_cpus)
        if overcommit:
            # as if for one task a node, but not less than -B says
            cpus = max(least, (given(request.cores_per_socket) or 1) * (given(request.threads_per_core) or 1))
        floor = 0 if details.whole else max(request.mincpus or 0, details.pn_min_cpus)
        wish = self._wish(job, details, request, size, limit, floor)
        return Goal(
            wish, cpus, least, max(wanted, least), most, max(floor, 1), required, details.contiguous,
            self._policy.least_loaded, overcommit,
        )  # fmt: skip

    def takes_whole_nodes(self, job: JobRecord) -> bool:
        """True for a job alone on its nodes."""
        details = job.details
        asks = details.whole or details.core_spec or details.request.exclusive
        parameters = self._parameters
        return parameters.takes_whole_nodes(job) or (bool(asks) and parameters.over_subscribe != "force")

    def sharers(self, job: JobRecord) -> int:
        """Return how many jobs may share the job's cores, the job included."""
        return self._parameters.sharers(job)

    def _wish(
        self, job: JobRecord, details: JobDetails, request: LayoutRequest, size: int, limit: int, floor: int
    ) -> Wish:
        """Return the wish with these values: a known wish if there is one, else a new wish."""
        parameters, policy = self._parameters, self._policy
        whole = self.takes_whole_nodes(job)
        system = details.core_spec  # and not the option, which Slurm ignores without AllowSpecResourcesUsage
        memory = details.pn_min_memory if parameters.tracks_memory else 0
        per_cpu = 0
        if parameters.tracks_memory and not memory:
            per_cpu = details.mem_per_cpu or parameters.def_mem_per_cpu
        enforce = "enforce-binding" in details.layout.get("gres_flags", "").split(",")
        gres = tuple(sorted(details.gres.items()))
        sharers = 1 if whole else self.sharers(job)
        asked = tuple(of_gres(details.gres)) if gres else ()
        user = job.user_id if any(one.is_share for one in asked) else ANYONE
        key = (
            user, size, limit, floor, memory, per_cpu, gres, details.features, sharers, system, enforce, whole,
            request.threads_per_core, request.ntasks_per_core, request.cores_per_socket, request.sockets_per_node,
            request.ntasks_per_socket, request.cpus_per_task, request.distribution,
        )  # fmt: skip
        wish = self._known.get(key)
        if wish is None:
            if len(self._known) >= _MOST_KEPT:
                self._known.clear()
            block = policy.unit == CPU or _fills_sockets(request.distribution, default=policy.block)
            per_core = 1 if policy.one_task_per_core else None
            wish = self._known[key] = Wish(
                request, policy.unit, size, limit, floor, per_core, memory, per_cpu, asked,
                frozenset(details.features), sharers, system, block=block, enforce=enforce, whole=whole,
                user=user,
            )  # fmt: skip
        return wish


def _fills_sockets(distribution: Distribution | None, *, default: bool) -> bool:
    if distribution and distribution.node == PLANE:
        return True
    if distribution is None or distribution.socket is None:
        return default
    return distribution.socket == BLOCK
