"""A job's allocation without a queue, for `nodectl bind` and tests: by select/cons_tres on described machines.

For this machine the configured plugin is asked. Runs as the user of the command. select/cons_tres is loaded once in a
process.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nodectl.placement.binding.allocation import Allocation, NodeGrant
from nodectl.placement.binding.devices import Wanted, held_of
from nodectl.placement.binding.geometry import given
from nodectl.placement.binding.job import check_names, inherited, specialised, tasks_of
from nodectl.placement.binding.no_layout import NoLayout
from nodectl.placement.binding.request import LayoutRequest, Settings
from nodectl.placement.machine.declared_devices import Device
from nodectl.placement.machine.topology import Topology
from nodectl.plugin_host.caller import PluginCaller
from nodectl.plugin_host.loader import Plugin
from nodectl.selection.answers import Choice, Refusal
from nodectl.selection.host import Selection
from nodectl.selection.loading import caller_of, load_plugin, unload
from nodectl.selection.modes import SELECT_MODE_RUN_NOW, SELECT_MODE_TEST_ONLY
from nodectl.selection.records import JobDetails, JobRecord, NodeRecord, NodeTable
from nodectl.selection.slurmctld import Parameters, parameters_of

if TYPE_CHECKING:
    from nodectl.model.config import Config

_PLUGIN = "select/cons_tres"
_NO_STATE = "/nonexistent"
_DEFAULTS = Settings()


def allocate(
    machines: Sequence[Topology],
    request: LayoutRequest,
    busy: Sequence[int] = (),
    settings: Settings = _DEFAULTS,
    names: Sequence[str] = (),
) -> Allocation:
    """Find nodes and cores for a job. Raises NoLayout.

    `busy`: by machine, the mask of the CPUs held by other jobs; a core with one busy CPU is not free. `names`: of the
    machines, n1, n2, ... if not given.
    """
    names = list(names) or [f"n{number}" for number in range(1, len(machines) + 1)]
    if request.relative is not None:
        raise NoLayout("--relative option invalid for job allocation request")
    check_names(request, names)
    nodes = NodeTable(
        NodeRecord(name, machine, reserved_cpus=specialised(machine, settings))
        for name, machine in zip(names, machines, strict=True)
    )
    plugin, caller = _loaded()
    selection = Selection(plugin, nodes, caller, parameters=Parameters(settings))
    return _allocation(selection, request, details_of(request), busy)[0]


def of_run(
    machine: Topology,
    request: LayoutRequest,
    config: Config,
    settings: Settings,
    asked: Wanted,
    devices: Sequence[Device],
) -> tuple[Allocation, list[Device]]:
    """Return the CPUs and devices of a job of `nodectl run` on this idle machine, chosen by the configured plugin.

    Raises NoLayout, PluginRefused.
    """
    free = specialised(machine, settings)
    node = NodeRecord(config.node_name, machine, reserved_cpus=free, devices=tuple(devices))
    details = details_of(request)
    if details.num_tasks * details.cpus_per_task > node.cpus and not details.overcommit:
        details.whole = details.overcommit = True  # as the daemon does
    if asked.count:
        details.gres = asked.as_gres()
        details.layout = {"gres_flags": "enforce-binding"} if asked.enforce else {}
    caller = caller_of(config.spank_hook_timeout)
    plugin = load_plugin(config.select_type, config.plugin_dir, caller)
    try:
        selection = Selection(plugin, NodeTable([node]), caller, parameters=parameters_of(config, settings))
        allocation, held = _allocation(selection, request, details)
    finally:
        unload(plugin, caller)
    return allocation, held_of(devices, held)


def _allocation(
    selection: Selection, request: LayoutRequest, details: JobDetails, busy: Sequence[int] = ()
) -> tuple[Allocation, tuple[str, ...]]:
    """Return the plugin's choice for a job, and the keys of the job's devices on the first node. Raises NoLayout."""
    nodes = selection.nodes
    selection.start(_NO_STATE)
    job = JobRecord(0, details=details)
    excluded = nodes.core_bitmap(dict(enumerate(busy))) if any(busy) else None
    found = selection.job_test(job, SELECT_MODE_RUN_NOW, excluded_cores=excluded)
    if isinstance(found, Refusal):
        never = selection.job_test(job, SELECT_MODE_TEST_ONLY)
        raise NoLayout(never.reason if isinstance(never, Refusal) else found.reason)
    first = found.nodes.find(1)
    return allocation_of(found, nodes, request), found.resources.gres.get(first, ())


def allocation_of(found: Choice, nodes: NodeTable, request: LayoutRequest) -> Allocation:
    """Return the choice for a job of this request in the form of the rules of binding."""
    held = found.resources
    grants = [
        NodeGrant(
            index,
            nodes[index].name,
            nodes.cpu_mask(nodes[index], held.core_bitmap),
            held.cpus[index],
            held.tasks.get(index, 0),
        )
        for index in found.nodes.search(1)
    ]
    return Allocation(
        tuple(grants),
        threads_per_core=given(request.threads_per_core),
        environment=inherited(request, len(grants)),
    )


def details_of(request: LayoutRequest) -> JobDetails:
    """Return the details of a job of this request."""
    ntasks = tasks_of(request)
    least, most = request.nodes or (1, 0)
    named = len(set(request.nodelist))
    if request.nodes:
        # Fewer tasks than nodes: a node without a task is not asked for.
        least, most = max(min(least, ntasks), named), max(min(most, ntasks), named)
    return JobDetails(
        num_tasks=ntasks,
        cpus_per_task=request.cpus_per_task or 1,
        min_nodes=least,
        max_nodes=most,
        overcommit=request.overcommit,
        share_res=False if request.exclusive else None,
        req_nodes=request.nodelist,
        exc_nodes=request.exclude,
        _request=request,
    )


@functools.cache
def _loaded() -> tuple[Plugin, PluginCaller]:
    caller = caller_of(0)
    return load_plugin(_PLUGIN, caller=caller), caller
