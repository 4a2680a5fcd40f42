"""The layout of this node's steps. The machine, the binding configuration and the devices are read once.

Runs in the daemon, as root, for task_p_slurmd_launch_request: before any process of a step exists. The rules are
`nodectl.placement.binding`.
"""

import contextlib
import functools
import os
from collections.abc import Callable, Iterable, Mapping

from nodectl.model import part_variables
from nodectl.model.config import Config
from nodectl.model.cpu_list import cpus_of, format_cpulist
from nodectl.model.device_part import loads_of
from nodectl.model.step import Step
from nodectl.model.step_number import BATCH, EXTERN, step_name
from nodectl.placement.binding import devices, node
from nodectl.placement.binding.answer import add_devices, given_answer, layout_answer
from nodectl.placement.binding.job import check_node
from nodectl.placement.binding.layout import Layout
from nodectl.placement.binding.no_layout import NoLayout
from nodectl.placement.binding.options import request_of
from nodectl.placement.binding.request import LayoutRequest, Settings
from nodectl.placement.binding.step import is_exact
from nodectl.placement.machine import cdi, detected_devices, topology
from nodectl.placement.machine.declared_devices import GPU, Device
from nodectl.placement.machine.topology import Topology
from nodectl.service.daemon.admission.layout_cache import LayoutCache

_MEMORY = ("SLURM_MEM_BIND", "SLURM_MEM_BIND_TYPE", "SLURM_MEM_BIND_LIST", "SLURM_MEM_BIND_VERBOSE",
           "SLURM_MEM_BIND_PREFER", "SLURM_MEM_BIND_SORT")  # fmt: skip
_MOST_MASKS = 1024
_GPUS_OF_JOB = "SLURM_JOB_GPUS"


class Binder:
    """The binder of the node. `allocation` is the mask of CPUs for jobs, `cores` the same as core numbers.

    `running` returns the steps whose devices are taken. CPUs that come online later count from the daemon's next start.
    """

    def __init__(self, config: Config, running: Callable[[], Iterable[Step]]) -> None:
        self._machine = node.with_boards(topology.read(allowed=os.sched_getaffinity(0)), config.boards)
        self._settings = node.settings_of(config, self._machine)
        self._name = config.node_name
        self._cdi = f"{config.runtime_dir}/cdi"
        self._site = cdi.Site()
        self._gres, self._sharing = config.gres, config.gpu_sharing
        self._running = running
        self._layouts = LayoutCache(self._lay_out)
        self._latest: tuple[dict[str, object], LayoutRequest] = ({}, request_of({}, {}))
        self._core_of = {1 << cpu: core.mask for core in self._machine.cores for cpu in core.cpus}
        self._shared = config.over_subscribe.startswith("force")
        self._cores: dict[int, str] = {}  # of the latest masks of jobs
        self.allocation = node.whole(self._machine, self._settings)
        self.cores = self.cores_of(self.allocation)

    def check(self, layout: Mapping[str, object], ntasks: int, *, own: bool) -> None:
        """Raise NoLayout for invalid options, and where a new job asks for resources missing on this node.

        `own` is True where the step makes a job of its own.
        """
        request = self._read(layout)
        asked = devices.wanted(_texts(layout), ntasks)
        if own:
            check_node(self._machine, request, self._settings, self._name)
            if asked.count:
                devices.hold(self.node_devices, asked, {}, self.allocation, self._machine)
            if request.nodes and request.nodes[0] > 1:
                self._layouts.get(request, self.allocation)  # raises the reason

    @property
    def machine(self) -> Topology:
        """The machine as read at the daemon's start."""
        return self._machine

    @property
    def settings(self) -> Settings:
        """The configuration in the form of the binding rules."""
        return self._settings

    def cores_of(self, mask: int) -> str:
        """Return the numbers of the cores with any CPU in the mask."""
        found = self._cores.get(mask)
        if found is None:
            if len(self._cores) >= _MOST_MASKS:
                self._cores.clear()
            found = format_cpulist(core.number for core in self._machine.cores if core.mask & mask)
            self._cores[mask] = found
        return found

    def give(self, step: Step, mask: int) -> None:
        """Give the step's job these CPUs. Until a task plugin binds the step, the step may use all of these CPUs."""
        step.allocation = step.base = step.step_cpus = mask
        step.cores = self.cores_of(mask)

    def asked(self, step: Step) -> devices.Wanted:
        """Return the devices requested by the step alone. Raises NoLayout."""
        return devices.wanted(_texts(step.layout), step.ntasks)

    def choose(self, step: Step, keys: Iterable[str], taken: Iterable[str]) -> list[str]:
        """Return the keys of the step's devices, chosen among the job's `keys` without `taken`. Raises NoLayout."""
        asked = self.asked(step)
        of_job = devices.within(devices.held_of(self.node_devices, keys), entire=not asked.is_share)
        loads = loads_of((key, step.uid) for key in taken)
        return [one.key for one in devices.hold(of_job, asked, loads, step.base, self._machine, user=step.uid)]

    def options_of(self, step: Step) -> LayoutRequest:
        """Return the parsed options of layout. Raises NoLayout."""
        return self._read(step.layout)

    def is_exact(self, step: Step) -> bool:
        """Return True where the step takes only the named amounts of the job. Raises NoLayout."""
        return is_exact(self._read(step.layout))

    def fits(self, step: Step, cpus: int) -> bool:
        """Return True where the step can be laid out on these CPUs.

        The CPUs must be as many as the step needs, or as all CPUs of the job where the job has fewer.
        """
        request = self._read(step.layout)
        need = 1 if request.overcommit else min(step.ntasks * step.cpus_per_task, step.allocation.bit_count())
        if cpus.bit_count() < need:
            return False
        try:
            self._layouts.get(request, cpus)
        except NoLayout:
            return False
        return True

    def _read(self, layout: Mapping[str, object]) -> LayoutRequest:
        """Return the parsed options, and keep the latest result for equal steps. Raises NoLayout."""
        texts, request = self._latest
        if texts != layout:
            request = request_of(layout, {}, str(layout.get("hostfile", "")))
            self._latest = dict(layout), request  # a copy: a task plugin may change the step's own
        return request

    def bind(self, req: Step) -> None:
        """Set the CPUs, memory, devices and variables of a step and of the step's tasks. Raises NoLayout.

        The reason is in the step, too.
        """
        try:
            self._bind(req)
        except NoLayout as error:
            req.refused = error.reason
            raise

    def _bind(self, req: Step) -> None:
        texts = _texts(req.layout)
        asked = devices.wanted(texts, req.ntasks)
        held = self._held(req, asked)
        if req.step_id in (BATCH, EXTERN):
            _keep_to_job(req)
        elif req.part is None:  # else the caller has laid out all parts
            need = req.ntasks * req.cpus_per_task
            self._lay_out_tasks(req, devices.cpus_near(held, req.base, asked, need, self._machine))
        if held:
            req.devices = [device.key for device in held]
        gpus = [device for device in held if device.name == GPU]
        part_variables.remove(req.environment)
        if gpus or not (req.is_first or req.within):
            req.environment.pop(part_variables.SHARDS, None)  # of the job, which has shards where this step has none
        if not gpus and self._has_gpus_for_others(req):
            req.task_variables = [devices.task_environment(()) for _ in range(req.ntasks)]
            for name in devices.OF_STEP:
                req.environment.pop(name, None)
        if gpus:
            given = devices.of_tasks(gpus, asked, req.cpu_masks, self._machine)
            req.task_variables = [devices.task_environment(of_task) for of_task in given]
            variables = devices.step_environment(gpus, texts)
            if not req.is_first:
                del variables[_GPUS_OF_JOB]  # these are in the step's environment already
            req.environment.update(variables)
        req.environment.pop(cdi.DIRECTORY, None)
        if any(one.file for one in gpus):
            req.environment[cdi.DIRECTORY] = f"{self._cdi}/{step_name(req.job_id, req.step_id)}"

    def for_containers(self, req: Step) -> Mapping[str, object]:
        """Return the description of the step's GPUs for containers, empty for a step without GPUs that have files."""
        held = devices.held_of(self.node_devices, req.devices) if req.devices else []
        gpus = [device for device in held if device.name == GPU and device.file]
        return cdi.spec_of(gpus, self._site.read()) if gpus else {}

    def _has_gpus_for_others(self, req: Step) -> bool:
        """Return True for a part without GPUs on its user's own node where the node has GPUs.

        The part comes with variables of its job, which has the GPUs. Within a job of Slurm's, these variables are its
        share.
        """
        is_own = req.part is not None and not req.within
        return is_own and any(device.name == GPU for device in self.node_devices)

    def _held(self, req: Step, asked: devices.Wanted) -> list[Device]:
        """Return the step's devices: given to the job already, or free devices for a first step. Raises NoLayout."""
        if req.devices:
            return devices.held_of(self.node_devices, req.devices)
        if asked.count and not req.is_first and req.part is None:
            raise NoLayout("devices are given to a job with its first step, not to a further one")
        if not asked.count or req.part is not None:
            return []
        held = {(live.job_id, key, live.uid) for live in self._running() for key in live.devices}
        loads = loads_of((key, user) for _, key, user in held)
        return devices.hold(self.node_devices, asked, loads, req.allocation, self._machine, user=req.uid)

    def _lay_out_tasks(self, req: Step, near: int) -> None:
        request = self._read(req.layout)
        req.base, layout = self._apart(request, near) if self._shared else (near, self._layouts.get(request, near))
        req.cpu_masks = [place.mask for place in layout.tasks]
        req.step_cpus = layout.nodes[0].cpus
        req.mems = format_cpulist(cpus_of(layout.nodes[0].mems))
        if any(place.policy for place in layout.tasks):
            policies = (place.policy for place in layout.tasks)
            req.mem_policies = [None if one is None else (one.mode, list(cpus_of(one.nodes))) for one in policies]
        for name in _MEMORY:
            req.environment.pop(name, None)
        req.environment.update(layout.environment)

    def explain(self, req: Step) -> Mapping[str, object]:
        """Return the layout of a step with the reasons for each place. Raises NoLayout."""
        if req.part is not None:
            return given_answer(req.numbers, req.cpu_masks, req.step_cpus, req.mems, req.environment)
        layout = self._lay_out(self._read(req.layout), req.base, reasons=True)
        answer = layout_answer(layout, {0: (self._name, req.allocation)})
        if req.devices:
            asked = devices.wanted(_texts(req.layout), req.ntasks)
            held = devices.held_of(self.node_devices, req.devices)
            add_devices(answer, devices.of_tasks(held, asked, req.cpu_masks, self._machine))
        return answer

    def _apart(self, request: LayoutRequest, cpus: int) -> tuple[int, Layout]:
        """Return a layout and its CPUs, away from the small steps of other jobs where there is room.

        This applies to a step which takes only a part of the CPUs.
        """
        layout = self._layouts.get(request, cpus)
        mine = layout.nodes[0].cpus
        # Including steps that took all CPUs left by other steps.
        others = [live.step_cpus for live in self._running() if live.step_cpus != self.allocation]
        if mine == cpus or not any(mask & mine for mask in others):
            return cpus, layout
        holders = self._holders(others)
        for most in sorted(set(holders.values())):
            free = cpus & sum(mask for mask, count in holders.items() if count <= most)
            if free.bit_count() < mine.bit_count():
                continue
            with contextlib.suppress(NoLayout):
                elsewhere = self._layouts.get(request, free)
                if elsewhere.nodes[0].cpus.bit_count() == mine.bit_count():
                    return free, elsewhere
        return cpus, layout

    def _holders(self, masks: Iterable[int]) -> dict[int, int]:
        """Return by core mask the number of `masks` with a CPU of the core.

        Hundreds of small steps on hundreds of cores are thus not compared one by one.
        """
        holders = dict.fromkeys(self._core_of.values(), 0)
        for mask in masks:
            rest = mask
            while rest:
                lowest = rest & -rest
                core = self._core_of.get(lowest, 0)  # an earlier daemon's step may have CPUs that are gone
                if core:
                    holders[core] += 1
                rest &= ~(core | lowest)
        return holders

    def _lay_out(self, request: LayoutRequest, cpus: int, *, reasons: bool = False) -> Layout:
        return node.lay_out(self._machine, cpus, request, self._settings, self._name, reasons=reasons)

    @functools.cached_property
    def node_devices(self) -> tuple[Device, ...]:
        """The devices of the node, detected at the first use.

        A user's own node has only the devices that its variables leave, as it has only the CPUs of its affinity.
        """
        found = detected_devices.of(self._gres, sharing=self._sharing)
        return found if os.geteuid() == 0 else devices.visible(found, os.environ)


def _keep_to_job(req: Step) -> None:
    """Bind the tasks of a script or an allocation to all CPUs of the job."""
    req.base = req.step_cpus = req.allocation
    req.cpu_masks = [req.allocation] * req.ntasks


def _texts(layout: Mapping[str, object]) -> dict[str, str]:
    return {name: str(value) for name, value in layout.items()}
