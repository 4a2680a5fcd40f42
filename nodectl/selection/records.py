"""The records given to a select plugin: nodes, jobs, steps and reservations, and bitmaps over the table of nodes.

The names are those of Slurm's documents. One JobRecord is the job everywhere: in the queue, in the select plugin, in
the daemon, and, as JSON, in its file. Bitmaps are `bitarray`s. A node bitmap has a bit for each node of the table. A
core bitmap has a bit for each core of each node, node after node: those of one node begin at its `core_offset` and
follow the order of its machine's cores. Counters are computed from what they count, so that they cannot disagree. Used
only from the daemon's event loop, and by planning commands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

from bitarray import bitarray

from nodectl.model.states import COMPLETING, PENDING, RUNNING, SUSPENDED
from nodectl.model.value_class import dataclass, field, names
from nodectl.placement.binding.options import request_of
from nodectl.placement.binding.request import LayoutRequest
from nodectl.placement.machine.declared_devices import Device
from nodectl.placement.machine.topology import Topology
from nodectl.selection.modes import NODE_STATE_DOWN, NODE_STATE_DRAIN, NODE_STATE_IDLE

RUN, ALLOC, BATCH = "run", "alloc", "batch"
"""What a job is held by: its step, its client's shell, its script."""


@dataclass(slots=True, eq=False)
class NodeRecord:
    """node_record_t. `real_memory` and `mem_spec_limit` in MiB; `reserved_cpus` is a machine mask of CPUs not given to
    jobs. `index` and `core_offset` are set by the table.
    """

    name: str
    config: Topology
    real_memory: int = 0
    mem_spec_limit: int = 0
    reserved_cpus: int = 0
    devices: tuple[Device, ...] = ()
    features: tuple[str, ...] = ()
    weight: int = 1
    node_rank: int = 0
    node_state: int = NODE_STATE_IDLE
    reason: str = ""
    reason_time: float = 0.0
    reason_uid: int = 0
    index: int = -1
    core_offset: int = 0
    select_nodeinfo: Any = None

    @property
    def cores(self) -> int:
        """The number of cores."""
        return sum([len(socket.cores) for socket in self.config.sockets])

    @property
    def cpus(self) -> int:
        """The number of CPUs available to jobs on the empty node."""
        return (self.config.usable & ~self.reserved_cpus).bit_count()

    @property
    def may_start_jobs(self) -> bool:
        """False for a node down or drained."""
        return self.node_state & 0xF != NODE_STATE_DOWN and not self.node_state & NODE_STATE_DRAIN


class NodeTable(Sequence[NodeRecord]):
    """The nodes, in the order of the bits of node bitmaps."""

    def __init__(self, nodes: Iterable[NodeRecord]) -> None:
        self._nodes = tuple(nodes)
        self.by_name = {node.name: node for node in self._nodes}
        self.devices_away: dict[int, Mapping[str, str]] = {}  # by node and key: why no job may have a device for now
        offset = 0
        for index, node in enumerate(self._nodes):
            node.index, node.core_offset = index, offset
            offset += node.cores
        self.core_count = offset

    def __getitem__(self, index: Any) -> Any:
        return self._nodes[index]

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[NodeRecord]:
        return iter(self._nodes)

    def bitmap(self, nodes: Iterable[int] = ()) -> bitarray:
        """Return a node bitmap with the bits of the given nodes set."""
        bits = bitarray(len(self._nodes))
        for node in nodes:
            bits[node] = 1
        return bits

    def core_bitmap(self, masks: Mapping[int, int] | None = None) -> bitarray:
        """Return a core bitmap. `masks`: by node, a machine mask; cores with a CPU in the mask are set."""
        bits = bitarray(self.core_count)
        for index, mask in (masks or {}).items():
            node = self._nodes[index]
            for number, core in enumerate(node.config.cores, node.core_offset):
                if core.mask & mask:
                    bits[number] = 1
        return bits

    def cpu_mask(self, node: NodeRecord, cores: bitarray) -> int:
        """Return the machine mask of the usable CPUs on the node's cores in a core bitmap."""
        usable, low, count = node.config.usable & ~node.reserved_cpus, node.core_offset, node.cores
        if cores.count(1, low, low + count) == count:
            return usable
        mask = 0
        for core, bit in zip(node.config.cores, cores[low : low + count], strict=True):
            if bit:
                mask |= core.mask
        return mask & usable


@dataclass(slots=True)
class JobDetails:
    """job_record_t's details: the job's request, unchanged by the start.

    MiB; counts of CPUs are threads; `least_cpus`: what the user's option min_cpus says, 0 without it, and `min_cpus` is
    never below it; times in seconds since the epoch, 0 for none. `layout` holds srun's options of
    layout and binding by their names, as texts; `request` is the same parsed. `gres`: how many devices on each node, by
    name or name:type; `shard` and `gpumem` (MiB) ask for a part of one GPU. `share_res`: None where the user said
    nothing, False for --exclusive, True for --oversubscribe. `whole`: all of the machine, for a job with more tasks
    than it has CPUs. `signal`: the signal to be sent before the time limit, as `model.warning` writes it.
    `kill_invalid_dep`: the job ends when its dependency can never be met. `notices`: of which events the job's user is
    told (`types`), by mail to `user` or by the line of shell `command`, which runs as confined as `secure` says; empty
    for none.
    """

    num_tasks: int = 1
    cpus_per_task: int = 1
    min_cpus: int = 1
    least_cpus: int = 0
    min_nodes: int = 1
    max_nodes: int = 0
    pn_min_cpus: int = 0
    pn_min_memory: int = 0
    mem_per_cpu: int = 0
    contiguous: bool = False
    overcommit: bool = False
    share_res: bool | None = None
    whole: bool = False
    core_spec: int = 0
    req_nodes: tuple[str, ...] = ()
    exc_nodes: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    gres: dict[str, int] = field(default_factory=dict)
    layout: dict[str, str] = field(default_factory=dict)
    begin_time: float = 0.0
    deadline: float = 0.0
    dependency: str = ""
    requeue: bool = True
    reservation: str = ""
    argv: tuple[str, ...] = ()
    work_dir: str = "/"
    std_in: str = ""
    std_out: str = ""
    std_err: str = ""
    open_append: bool = False
    signal: str = ""
    kill_invalid_dep: bool = False
    notices: dict[str, str] = field(default_factory=dict)
    req_node_bitmap: bitarray | None = None
    exc_node_bitmap: bitarray | None = None
    _request: LayoutRequest | None = None

    @property
    def known_request(self) -> LayoutRequest | None:
        """The request parsed from `layout`, or None before the first use of `request`."""
        return self._request

    def forget_request(self) -> None:
        """Drop the parsed request of an ended job, so as not to keep lists of masks with the record."""
        self._request = None

    @property
    def request(self) -> LayoutRequest:
        """The request parsed from `layout`. Raises `binding.no_layout.NoLayout`."""
        if self._request is None:
            self._request = request_of(self.layout, {}, self.layout.get("hostfile", ""))
        return self._request


@dataclass(slots=True)
class JobResources:
    """job_resources_t: the resources held by a job. By index of the node: `cpus` counted, `memory` in MiB, the number
    of `tasks` in the layout, `gres` as the keys of the devices (gpu:0), or of parts of them (`model/device_part.py`).
    """

    node_bitmap: bitarray
    core_bitmap: bitarray
    cpus: dict[int, int] = field(default_factory=dict)
    memory: dict[int, int] = field(default_factory=dict)
    tasks: dict[int, int] = field(default_factory=dict)
    gres: dict[int, tuple[str, ...]] = field(default_factory=dict)

    @property
    def nhosts(self) -> int:
        """The number of nodes."""
        return self.node_bitmap.count()

    @property
    def ncpus(self) -> int:
        """The number of CPUs in all."""
        return sum(self.cpus.values())


@dataclass(slots=True, eq=False)
class JobRecord:
    """job_record_t. `held_by`: run, alloc or batch. Times in seconds since the epoch, 0 for none; `time_limit` in
    seconds, 0 for none. An active job's `end_time` is the expected end; `direct_priority` is an administrator's value,
    0 for none. `array_task_id` is None for a job outside of arrays; one record stands for all waiting tasks of an array
    (`array_tasks`, as "0-9:2", and `array_limit` of them at a time, 0 for no limit). `array_span` describes the array
    as submitted, also in each task: how many tasks, the least and the greatest index, the step. `warned`: the run that
    got the requested signal. `to_requeue`: None, or the value for `held` ("" for not held) with which the job waits
    again when its processes have ended. `select_packed` is `select_jobinfo` as the plugin packed it, in hexadecimal.
    `clock_set`: by how many seconds the times of this run were moved, because the clock was set while the job ran.
    `idle_since`: since when a running job does nothing. `given_to`: the job that holds all resources of this job, whose
    processes end; `given_resrcs`: these resources, which this job gets back where the other job ends before. `joining`:
    in a job that was given such resources, the jobs that gave them and have not ended, each number with the MiB to
    which this job's limit is raised afterwards.
    """

    job_id: int
    user_id: int = 0
    group_id: int = 0
    user_name: str = "root"
    name: str = ""
    partition: str = ""
    qos: str = "normal"
    held_by: str = RUN
    job_state: str = PENDING
    state_reason: str = ""
    state_desc: str = ""
    priority: int = 0
    direct_priority: int = 0
    nice: int = 0
    held: str = ""
    time_limit: int = 0
    submit_time: float = 0.0
    eligible_time: float = 0.0
    start_time: float = 0.0
    end_time: float = 0.0
    suspend_time: float = 0.0
    suspended_seconds: float = 0.0
    suspended_by_owner: bool = False
    clock_set: float = 0.0
    restart_cnt: int = 0
    exit_code: int = 0
    array_job_id: int = 0
    array_task_id: int | None = None
    array_tasks: str = ""
    array_limit: int = 0
    array_span: tuple[int, ...] = ()
    preempted_by: int = 0
    warned: int = -1
    to_requeue: str | None = None
    given_to: int = 0
    idle_since: float = 0.0
    joining: tuple[tuple[int, int], ...] = ()
    comment: str = ""
    account: str = ""
    nodes: str = ""
    details: JobDetails = field(default_factory=JobDetails)
    node_bitmap: bitarray | None = None
    job_resrcs: JobResources | None = None
    given_resrcs: JobResources | None = None
    select_jobinfo: Any = None
    select_packed: str = ""

    @property
    def num_procs(self) -> int:
        """The least number of CPUs of the job's allocation."""
        return self.details.min_cpus

    @property
    def total_cpus(self) -> int:
        """The number of CPUs held by the job."""
        return 0 if self.job_resrcs is None else self.job_resrcs.ncpus

    @property
    def node_cnt(self) -> int:
        """The number of nodes held by the job."""
        return 0 if self.node_bitmap is None else self.node_bitmap.count()

    @property
    def is_active(self) -> bool:
        """True while the job holds resources."""
        return self.job_state in (RUNNING, SUSPENDED, COMPLETING)

    def used_seconds(self, now: float) -> float:
        """Return how long the job has run, minus the time for which an admin or another job had the job suspended."""
        if not self.start_time or self.job_state == PENDING:
            return 0.0
        stands_still = self.job_state == SUSPENDED and not self.suspended_by_owner
        until = self.end_time if not self.is_active else self.suspend_time if stands_still else now
        return max(0.0, until - self.start_time - self.suspended_seconds)

    def as_json(self) -> dict[str, object]:
        """Return the fields independent of the table of nodes. `resources_as_json` writes the job's resources."""
        record = dict(zip(_RECORD, _record_values(self), strict=True))
        record["details"] = dict(zip(_DETAILS, _details_values(self.details), strict=True))
        return record

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> JobRecord:
        """Make a job of the result of `as_json`, here or in another version. Raises KeyError, TypeError.

        Unknown fields are left out, missing fields get their defaults.
        """
        details = {name: value for name, value in values.get("details", {}).items() if name in _DETAILS}
        for name in _TUPLES & details.keys():
            details[name] = tuple(details[name])
        record = {name: values[name] for name in _RECORD if name in values}
        record["array_span"] = tuple(record.get("array_span", ()))
        record["joining"] = tuple((int(job), int(memory)) for job, memory in record.get("joining", ()))
        return cls(**record, details=JobDetails(**details))


_NO_JSON = ("details", "node_bitmap", "job_resrcs", "given_resrcs", "select_jobinfo")
_RECORD = tuple(name for name in names(JobRecord) if name not in _NO_JSON)
_DETAILS = tuple(name for name in names(JobDetails) if name not in ("req_node_bitmap", "exc_node_bitmap", "_request"))
_record_values: Callable[[JobRecord], tuple[object, ...]] = attrgetter(*_RECORD)
_details_values: Callable[[JobDetails], tuple[object, ...]] = attrgetter(*_DETAILS)
_TUPLES = frozenset({"req_nodes", "exc_nodes", "features", "argv"})


def resources_as_json(resources: JobResources, nodes: NodeTable) -> dict[str, object]:
    """Return a job's resources by name of the node; CPUs as a hexadecimal machine mask."""
    held: dict[str, object] = {}
    for index in resources.node_bitmap.search(bitarray("1")):
        node = nodes[index]
        held[node.name] = {
            "mask": f"{nodes.cpu_mask(node, resources.core_bitmap):x}",
            "cpus": resources.cpus.get(index, 0),
            "memory": resources.memory.get(index, 0),
            "tasks": resources.tasks.get(index, 0),
            "gres": list(resources.gres.get(index, ())),
        }
    return held


def resources_from_json(held: Mapping[str, Any], nodes: NodeTable) -> JobResources:
    """Make resources of JSON by `resources_as_json`, without nodes now gone. Raises KeyError, ValueError, TypeError."""
    there = {nodes.by_name[name].index: share for name, share in held.items() if name in nodes.by_name}
    return JobResources(
        nodes.bitmap(there),
        nodes.core_bitmap({index: int(share["mask"], 16) for index, share in there.items()}),
        {index: int(share["cpus"]) for index, share in there.items()},
        {index: int(share["memory"]) for index, share in there.items()},
        {index: int(share["tasks"]) for index, share in there.items()},
        {index: tuple(share["gres"]) for index, share in there.items() if share["gres"]},
    )


@dataclass(slots=True, eq=False)
class StepRecord:
    """step_record_t. `step_node_bitmap`: the nodes chosen by step_pick_nodes, or all nodes of the job."""

    job_ptr: JobRecord
    step_id: int
    name: str = ""
    num_tasks: int = 1
    start_time: float = 0.0
    exit_code: int = 0
    step_node_bitmap: bitarray | None = None
    select_jobinfo: Any = None


@dataclass(slots=True, eq=False)
class ReservationRequest:
    """resv_desc_msg_t. `node_list`: names between commas, "" for any; `core_cnt`: cores of each node, 0 for whole
    nodes; times in seconds since the epoch. `held`: once it is made, by node the machine mask of its cores. `gpus`: how
    many GPUs stay free for its jobs, of all nodes together, whichever these are.
    """

    name: str
    start_time: float
    end_time: float
    node_cnt: int = 1
    node_list: str = ""
    core_cnt: int = 0
    users: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    held: dict[str, int] = field(default_factory=dict)
    gpus: int = 0


@dataclass(slots=True)
class NodeInfoMessage:
    """node_info_msg_t, all nodes, for ba_init."""

    node_array: Sequence[NodeRecord]
    last_update: float = 0.0

    @property
    def record_count(self) -> int:
        """The number of nodes."""
        return len(self.node_array)


@dataclass(slots=True)
class Output:
    """An output parameter of a documented function: the plugin sets `value`."""

    value: Any = None
