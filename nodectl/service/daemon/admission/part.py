"""A step on this node as a part of a step over several nodes: the part in the request, and the Step's fields.

The caller has laid the whole step out (`nodectl/cluster/leader/parts.py`): CPUs, masks and numbers are taken as
given, within the caller's resources. On a user's own node these are all resources, and no other user may ask; at root's
service they are the resources of the caller's job of Slurm's (`slurm_job.py`). The daemon trusts none of it: it refuses
everything outside this machine, or outside that job. Pure except for the uid of this daemon.
"""

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from nodectl.launch.cgroup import shares, slurms
from nodectl.model.cpu_list import cpus_of, format_cpulist, mask_of_list
from nodectl.model.number import whole
from nodectl.model.part import Part, numbers_of
from nodectl.model.request_fields import LONGEST_MASK, MOST_OF_ALL_NODES, PartOfStep
from nodectl.model.step import Step
from nodectl.model.step_number import EXTERN
from nodectl.model.wire.dispatch import Refused, invalid
from nodectl.model.wire.shape import BadShape, array, check, integer, text
from nodectl.model.wire.table import shape_of
from nodectl.placement.binding.layout import BIND, DEFAULT
from nodectl.service.daemon.admission.binder import Binder

if TYPE_CHECKING:
    from nodectl.model.wire.framing import Peer
    from nodectl.service.daemon.admission.slurm_job import SlurmJob, SlurmJobs

_HEX = frozenset("0123456789abcdefABCDEF")
_SOCKET = "NODECTL_SOCKET"
_VERBOSE = "SLURM_CPU_BIND_VERBOSE"
_NOT_WITH_IT = ("job", "step", "jobid", "container_ns")
_OF_MEMORY = 2  # figures of a policy: its mode and its nodes


def _mask(value: object) -> str:
    is_mask = isinstance(value, str) and 0 < len(value) <= LONGEST_MASK and _HEX.issuperset(value)
    return "" if is_mask else "not a mask of hexadecimal digits"


def _policy(value: object) -> str:
    if not isinstance(value, list) or len(value) not in (0, _OF_MEMORY):
        return "not a mode and a list of nodes"
    return (_MODE(value[0]) or _LIST(value[1])) if value else ""


_MODE, _LIST = integer(DEFAULT, BIND), text(4096)

PART = shape_of(
    PartOfStep,
    {
        "masks": array(_mask, most=MOST_OF_ALL_NODES),
        "mem_policies": array(_policy, most=MOST_OF_ALL_NODES),
    },
)


def shaped(part: object) -> Mapping[str, object]:
    """Return a part after a check of the shape. Raises Refused."""
    try:
        return check(part, PART)
    except BadShape as error:
        raise invalid("part", str(error)) from None


def allow(request: Mapping[str, object], caller: "Peer", slurm_jobs: "SlurmJobs") -> "SlurmJob | None":
    """Return the job of Slurm's around the part, None on the user's own node. Raises Refused if not permitted."""
    job = None
    if os.geteuid() == 0:
        job = slurm_jobs.of(caller)
        if shaped(request["part"])["job"] != job.number:
            why = f"part: the caller's job is {job.number}, and no other one"
            raise Refused("NotPermitted", why, exit_status=1)
    elif caller.uid != os.geteuid():
        why = f"this is the own node of uid {os.geteuid()}, which starts no others' steps"
        raise Refused("NotPermitted", f"part: {why}", exit_status=1)
    for name in _NOT_WITH_IT:
        if name in request:
            raise invalid(name, "a part has its numbers and its job with it")
    return job


def apply(step: Step, request: Mapping[str, object], binder: Binder, job: "SlurmJob | None" = None) -> None:
    """Make the step the part in the request, within `job`. Raises Refused."""
    part = shaped(request["part"])
    if job is not None:
        if part.get("devices"):
            raise invalid("part", "devices: those of the job are Slurm's to give")
        step.within, step.hard_limits, step.container = job.place, job.hard_limits, {}
        step.cgroup = slurms.step_path(job.place, int(str(part["step"])))
        step.shares = shares.asked(request)  # the service's default shares are not for jobs of Slurm's
    step.part = _read(part, step.ntasks)
    step.job_id, step.step_id = int(str(part["job"])), int(str(part["step"]))
    step.first_step = EXTERN  # nothing on this node holds its job
    step.node_name = str(part["node"])
    variables: Mapping[str, str] = part.get("environment", {})  # type: ignore[assignment]  # PART says so
    step.environment = {**step.environment, **variables, **_binding(part, variables)}
    step.environment.pop(_SOCKET)  # the part's tasks ask the cluster, not this service, for further steps
    if _SOCKET in request["environment"]:  # type: ignore[operator]  # REQUEST says so
        step.environment[_SOCKET] = request["environment"][_SOCKET]  # type: ignore[index]
    step.job_began = float(whole(step.environment.get("SLURM_JOB_START_TIME", ""), 1 << 40) or 0)
    step.job_ends = float(whole(step.environment.get("SLURM_JOB_END_TIME", ""), 1 << 40) or 0)
    _give(step, part, binder, binder.allocation if job is None else job.cpus)


def _read(part: Mapping[str, object], ntasks: int) -> Part:
    """Return the part after a check of the numbers. Raises Refused."""
    total, nodes = int(str(part["ntasks"])), int(str(part["nnodes"]))
    if int(str(part["nodeid"])) >= nodes:
        raise invalid("part", f"nodeid: {part['nodeid']} is none of {nodes} nodes")
    name = str(part["node"])
    if not name.isprintable() or set(name) & set(" /,[]") or name in ("", ".", ".."):
        raise invalid("part", f"node: {name[:64]!r} is no name of a node")
    if nodes > total:
        raise invalid("part", f"nnodes: {nodes} are more than its {total} tasks")
    try:
        numbers = numbers_of(str(part["tasks"]), ntasks, total)
    except ValueError as error:
        raise invalid("part", f"tasks: {error}") from None
    if len(numbers) != ntasks:
        raise invalid("part", f"tasks: they are {len(numbers)}, and {ntasks} are asked for")
    return Part(part)


def _binding(part: Mapping[str, object], variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with this node's binding."""
    bind: Sequence[str] = part.get("bind", ())  # type: ignore[assignment]  # PART says so
    if not bind:
        return {}
    kind, listed = bind[0], bind[1] if len(bind) > 1 else ""
    verbosity = variables.get(_VERBOSE, "quiet")
    return {
        "SLURM_CPU_BIND": f"{verbosity},{kind}{listed}",
        "SLURM_CPU_BIND_LIST": listed,
        "SLURM_CPU_BIND_TYPE": kind,
        _VERBOSE: verbosity,
    }


def _give(step: Step, part: Mapping[str, object], binder: Binder, most: int) -> None:
    """Give the step CPUs of the mask `most`, memory nodes and devices. Raises Refused for any not on this machine."""
    if wrong := _mask(part["cpus"]):
        raise invalid("part", f"cpus: {wrong}")
    cpus = int(str(part["cpus"]), 16)
    masks = [int(mask, 16) for mask in part["masks"]]  # type: ignore[attr-defined]  # PART says so
    if not cpus or cpus & ~most:
        here = format_cpulist(cpus_of(most))
        raise invalid("part", f"cpus: {str(part['cpus'])[:40]} is none of the CPUs here, which are {here}")
    if len(masks) != step.ntasks:
        raise invalid("part", f"masks: they are {len(masks)} for {step.ntasks} tasks")
    for mask in masks:
        if mask & ~cpus:
            raise invalid("part", f"masks: {f'{mask:x}'[:40]} is no part of the step's CPUs")
    binder.give(step, most)
    step.base = step.step_cpus = cpus
    step.cpu_masks = masks
    there = {node.number for node in binder.machine.nodes}
    step.mems = format_cpulist(_memory(part.get("mems"), there))
    policies: Sequence[Sequence[object]] = part.get("mem_policies", ())  # type: ignore[assignment]  # PART says so
    if policies and len(policies) != step.ntasks:
        raise invalid("part", f"mem_policies: they are {len(policies)} for {step.ntasks} tasks")
    step.mem_policies = [(int(str(one[0])), sorted(_memory(one[1], there))) if one else None for one in policies]
    step.devices = list(map(str, part.get("devices", ())))  # type: ignore[call-overload]  # PART says so
    if step.devices:
        known = {device.key for device in binder.node_devices}
        if missing := [key for key in step.devices if key not in known]:
            raise invalid("part", f"devices: there is no {missing[0]!r} here")


def _memory(given: object, there: set[int]) -> set[int]:
    """Return the NUMA nodes in a list; all nodes where no list is given. Raises Refused."""
    if given is None:
        return there
    try:
        named = set(cpus_of(mask_of_list(str(given))))
    except ValueError as error:
        raise invalid("part", f"mems: {error}") from None
    if not named or named - there:
        raise invalid("part", f"mems: {str(given)[:40]} are none of the NUMA nodes here")
    return named
