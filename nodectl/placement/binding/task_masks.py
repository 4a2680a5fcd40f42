"""The masks of the tasks of a node, with the rule behind the masks and the words in SLURM_CPU_BIND."""

from __future__ import annotations

from collections.abc import Sequence

from nodectl.model.cpu_list import cpus_of, format_cpulist
from nodectl.model.value_class import dataclass
from nodectl.placement.binding import cpu_bind as words
from nodectl.placement.binding.cpu_bind import CpuBind, format_mask
from nodectl.placement.binding.dealing import Deal, DoesNotFit, deal
from nodectl.placement.binding.entries import without_prefix
from nodectl.placement.binding.no_layout import NoLayout
from nodectl.placement.binding.request import BLOCK, FULL_CYCLIC, PLANE, UNLIMITED, LayoutRequest, Settings
from nodectl.placement.machine.topology import Topology


@dataclass(frozen=True, slots=True)
class Bound:
    """The binding of a node's tasks.

    `masks`: a mask for each task in the order of the local numbers, 0 for not bound. `told`, `entries`: the words and
    the list of SLURM_CPU_BIND. `rule`: the rule in words.
    """

    masks: tuple[int, ...]
    told: str
    entries: str
    rule: str


def bind(machine: Topology, cpus: int, ntasks: int, request: LayoutRequest, settings: Settings) -> Bound:
    """Bind the step's `ntasks` tasks on `machine` to CPUs within `cpus`, the step's CPUs there. Raises NoLayout."""
    asked = request.cpu_bind or CpuBind()
    if not asked.asked and settings.node_cpu_bind:
        asked = settings.node_cpu_bind.replace(verbose=asked.verbose)
    if machine.threads_per_core == 1:
        asked = asked.replace(one_thread=True)
    if asked.mode:
        return _explicit(machine, cpus, ntasks, asked)
    if asked.unit:
        return _automatic(machine, cpus, ntasks, asked, request, settings, f"bound to {asked.unit}, as asked")
    size = request.cpus_per_task or 1
    unit, rule = _fitting_unit(machine, cpus, ntasks * size, settings)
    rule = f"{ntasks} x {size} CPUs {rule}"
    if not unit:
        return _everything(machine, cpus, ntasks, asked, rule)
    return _automatic(machine, cpus, ntasks, asked.replace(unit=unit), request, settings, rule)


def _everything(machine: Topology, cpus: int, ntasks: int, asked: CpuBind, rule: str) -> Bound:
    told = _told(asked.unit, words.MASK)
    return Bound((cpus,) * ntasks, told, format_mask(cpus, machine.width), rule)


def _told(unit: str, mode: str) -> str:
    """Return the words of SLURM_CPU_BIND_TYPE."""
    colon = ":" if mode in (words.MAP, words.MASK, words.MAP_LDOM, words.MASK_LDOM) else ""
    return ",".join(word for word in (unit, mode) if word) + colon


def _explicit(machine: Topology, cpus: int, ntasks: int, asked: CpuBind) -> Bound:
    mode = asked.mode
    told = _told(asked.unit, mode)
    rule = f"bound by {mode}, as asked"
    if mode in (words.MAP, words.MASK):
        return _listed(machine, cpus, ntasks, asked)
    if cpus != machine.usable:
        if mode == words.NONE:
            rule = "not bound, as asked, but kept to the step's CPUs, which are a part of the node"
            return _everything(machine, cpus, ntasks, asked, rule)
        flags = _told(asked.unit, mode).rstrip(":") + (",one_thread" if asked.one_thread else "")
        raise NoLayout(f"Entire node must be allocated for {flags}; allocated CPUs are {_shown(machine, cpus)}")
    if mode == words.NONE:
        return Bound((0,) * ntasks, told, "", "not bound, as asked")
    if mode == words.RANK:
        # Slurm's modulus. It exceeds the number of CPUs except on machines of one thread a core.
        modulus = machine.online.bit_count() * machine.threads_per_core
        masks = tuple(1 << task % modulus for task in range(ntasks))
        for task, mask in enumerate(masks):
            if not mask & machine.online:
                raise NoLayout(f"--cpu-bind=rank: there is no CPU {task} for task {task}")
        return Bound(masks, told, "", rule)
    nodes = {node.number: node.mask for node in machine.nodes}
    count = max(nodes) + 1
    if mode == words.RANK_LDOM:
        wanted = [1 << task % count for task in range(ntasks)]
    elif mode == words.MAP_LDOM:
        wanted = [1 << asked.entries[task % len(asked.entries)] % count for task in range(ntasks)]
    else:
        wanted = [asked.entries[task % len(asked.entries)] for task in range(ntasks)]
    made = {mask: sum(nodes.get(number, 0) for number in cpus_of(mask)) for mask in set(wanted)}
    return Bound(tuple(made[mask] for mask in wanted), told, _listed_words(asked), rule)


def _listed_words(asked: CpuBind) -> str:
    """Return the list in the user's words, masks without 0x."""
    return without_prefix(asked.listed) if asked.mode in (words.MASK, words.MASK_LDOM) else asked.listed


def _shown(machine: Topology, cpus: int) -> str:
    return f"{format_cpulist(cpus_of(cpus))} (mask {format_mask(cpus, machine.width)})"


def _listed(machine: Topology, cpus: int, ntasks: int, asked: CpuBind) -> Bound:
    # An empty mask stands for all of the step's CPUs; the variables have the resulting mask.
    masks = [mask or cpus for mask in asked.entries]
    listed = _listed_words(asked)
    if asked.mode == words.MAP:
        masks = [1 << cpu for cpu in asked.entries]
    elif 0 in asked.entries:
        listed = ",".join(f"{mask:x}" for mask in masks)
    for mask in masks:  # including masks that no task uses
        if mask & ~cpus:
            raise NoLayout(
                f"CPU binding outside of job step allocation, allocated CPUs are: {format_mask(cpus, machine.width)}."
            )
    bound = tuple(masks[task % len(masks)] for task in range(ntasks))
    return Bound(bound, _told(asked.unit, asked.mode), listed, f"bound by {asked.mode}, as asked")


def _whole(parts: Sequence[int], cpus: int) -> tuple[int, bool]:
    """Count the parts wholly within `cpus`. Return the count, and True if `cpus` also holds a piece of a part."""
    whole = sum(1 for part in parts if part and part & cpus == part)
    partial = any(part & cpus and part & cpus != part for part in parts)
    return whole, partial


def _fitting_unit(machine: Topology, cpus: int, need: int, settings: Settings) -> tuple[str, str]:
    """Return the unit of which the step has exactly as many as needed, and the rule in words."""
    for unit, parts in (
        (words.SOCKETS, [socket.mask & machine.usable for socket in machine.sockets]),
        (words.CORES, [core.mask & machine.usable for core in machine.cores]),
    ):
        whole, partial = _whole(parts, cpus)
        if whole == need and not partial:
            return unit, f"are as many as the step has {unit}"
    if need == cpus.bit_count():
        return words.THREADS, "are as many as the step has threads"
    for unit in (words.THREADS, words.CORES, words.SOCKETS):
        if f"autobind={unit}" in settings.task_plugin_param:
            return unit, f"fit nothing: {unit}, from task_plugin_param"
    return "", "are not as many as the step has sockets, cores or threads: all of its CPUs"


def _automatic(
    machine: Topology,
    cpus: int,
    ntasks: int,
    asked: CpuBind,
    request: LayoutRequest,
    settings: Settings,
    rule: str,
) -> Bound:
    limit = request.threads_per_core or 0
    if limit in (0, UNLIMITED):
        limit = 1 if asked.one_thread else 0
    order = Deal(
        ntasks=ntasks,
        size=request.cpus_per_task or 1,
        available=cpus,
        unit=asked.unit,
        threads_limit=limit,
        per_core=_limit(request.ntasks_per_core),
        per_socket=_limit(request.ntasks_per_socket),
    )
    block, full_cyclic = _ways(request, settings)
    try:
        masks = deal(machine, order, block=block, full_cyclic=full_cyclic)
    except DoesNotFit:
        if not request.overcommit:
            raise NoLayout(
                f"the tasks cannot be bound to {asked.unit} of the allocated CPUs {_shown(machine, cpus)}"
            ) from None
        rule = f"bound to all of the step's CPUs: the tasks do not fit on its {asked.unit}"
        return _everything(machine, cpus, ntasks, asked, rule)
    listed = ",".join(format_mask(mask, machine.width) for mask in masks)
    return Bound(masks, _told("", words.MASK), listed, f"{rule}, sockets {'filled' if block else 'in turn'}")


def _limit(number: int | None) -> int:
    return 0 if number in (None, UNLIMITED) else int(number or 0)


def _ways(request: LayoutRequest, settings: Settings) -> tuple[bool, bool]:
    """Return two flags: fill a socket before the next; give each next CPU from the next socket."""
    dist = request.distribution
    if dist is None or (dist.socket is None and dist.node != PLANE):
        return settings.selects("cr_core_default_dist_block"), False
    if dist.node == PLANE:
        return True, False
    return dist.socket == BLOCK, dist.socket == FULL_CYCLIC
