"""Binding on this node: the configuration as settings, the CPUs of a job of `nodectl run`, the layout of the step.

Pure functions of values, in the daemon and in `nodectl bind`, so that both give the same answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nodectl.model.cpu_list import cpus_of, mask_of, mask_of_list
from nodectl.model.value_class import replace
from nodectl.placement.binding.allocation import Allocation
from nodectl.placement.binding.job import specialised
from nodectl.placement.binding.layout import Layout
from nodectl.placement.binding.request import LayoutRequest, Settings
from nodectl.placement.binding.step import place
from nodectl.placement.machine.topology import Board, Topology

if TYPE_CHECKING:
    from nodectl.model.config import Config


def settings_of(config: Config, machine: Topology) -> Settings:
    """Return the configuration in the form of the rules: words in lower case, cpu_spec_list in machine numbers."""
    reserved = mask_of_list(config.cpu_spec_list) & ((1 << len(machine.machine_of)) - 1)
    return Settings(
        select_type_parameters=tuple(word.lower() for word in config.select_type_parameters),
        slurmd_parameters=tuple(word.lower() for word in config.slurmd_parameters),
        task_plugin_param=tuple(word.lower() for word in config.task_plugin_param),
        cpu_spec_list=machine.to_machine(reserved),
        core_spec_count=config.core_spec_count,
    )


def with_boards(machine: Topology, count: int) -> Topology:
    """Return the machine with sockets on `count` boards; unchanged for 0, or if the sockets cannot be shared evenly."""
    if not count or len(machine.sockets) % count:
        return machine
    size = len(machine.sockets) // count
    runs = [machine.sockets[at : at + size] for at in range(0, len(machine.sockets), size)]
    masks = [mask_of(cpu for socket in run for cpu in cpus_of(socket.mask)) for run in runs]
    return replace(machine, boards=tuple(Board(number, mask) for number, mask in enumerate(masks)))


def whole(machine: Topology, settings: Settings) -> int:
    """Return the mask of all CPUs except the CPUs reserved for the system."""
    return machine.usable & ~specialised(machine, settings)


def lay_out(
    machine: Topology, cpus: int, request: LayoutRequest, settings: Settings, name: str, *, reasons: bool = True
) -> Layout:
    """Lay out a step of `nodectl run` on the `cpus` of the step's job; `reasons` as in `place`. Raises NoLayout.

    Differs from Slurm's step in an existing job in one point: more tasks than CPUs need no --overcommit, because no
    queue has promised the CPUs. Tasks bound by a unit are then dealt as if they came in groups that fit.
    """
    ntasks, size = request.ntasks or 1, request.cpus_per_task or 1
    allocation = Allocation.of_masks((machine,), {0: cpus}, (name,))
    available = allocation.nodes[0].cpus.bit_count()
    if request.overcommit or ntasks * size <= available:
        return place((machine,), allocation, request, settings, reasons=reasons)
    bind = request.cpu_bind
    if bind is None or bind.mode or not bind.unit:
        shared = place((machine,), allocation, replace(request, overcommit=True), settings, reasons=reasons)
        unsaid = {name: value for name, value in shared.environment.items() if name != "SLURM_OVERCOMMIT"}
        return replace(shared, environment=unsaid)  # variables reflect the user's own options
    few = max(1, available // size)
    group = place((machine,), allocation, replace(request, ntasks=few), settings, reasons=reasons)
    return _repeated(group, ntasks)


def _repeated(group: Layout, ntasks: int) -> Layout:
    """Lay out `ntasks` tasks by repeating the group."""
    few = len(group.tasks)
    tasks = tuple(replace(group.tasks[task % few], task=task, local=task) for task in range(ntasks))
    masks = group.environment["SLURM_CPU_BIND_LIST"].split(",")
    listed = ",".join(masks[task % few] for task in range(ntasks)) if len(masks) == few > 1 else masks[0]
    environment = {
        **group.environment,
        "SLURM_CPU_BIND": group.environment["SLURM_CPU_BIND"].replace(group.environment["SLURM_CPU_BIND_LIST"], listed),
        "SLURM_CPU_BIND_LIST": listed,
        "SLURM_GTIDS": ",".join(map(str, range(ntasks))),
        "SLURM_NTASKS": str(ntasks),
        "SLURM_TASKS_PER_NODE": str(ntasks),
    }
    share = replace(group.nodes[0], ntasks=ntasks, bind_list=listed)
    rule = f"{group.rule}; {ntasks} tasks share the CPUs of {few}"
    return Layout(tasks, (share,), environment, rule)
