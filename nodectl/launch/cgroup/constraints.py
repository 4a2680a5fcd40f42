"""The constraints of the configuration, as far as the machine can enforce them, and the limits of jobs and steps.

Names and arithmetic are Slurm's (cgroup.conf, section "memory"). The daemon decides, plugins write.
"""

import errno
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from nodectl.kernel import _kernel
from nodectl.launch.cgroup import delegation, device_access, device_memory, shares, tree
from nodectl.model.config import Config
from nodectl.model.cpu_list import cpus_of, format_cpulist
from nodectl.model.node_device import NodeDevice
from nodectl.model.step import Step
from nodectl.placement.machine.thread_limit import most_threads

_MIB = 1 << 20
_OWN = {
    shares.PIDS_MAX: 64,
    shares.CPU_MAX: 10,
}  # for step runners and prologs: so a step's limits are reached first, and are reported
_BPF = "bpf(2)"
_GPU_MEMORY = "constrain_gpu_memory"
_CONTROLLERS = {
    "constrain_cores": "cpuset",
    "constrain_ram_space": "memory",
    "constrain_swap_space": "memory",
    "constrain_processes": "pids",
    "constrain_cpu_time": "cpu",
    "constrain_io": "io",
    "constrain_devices": _BPF,  # a program instead of a controller
    _GPU_MEMORY: device_memory.CONTROLLER,
}
_FILES = {"cpu.max": "constrain_cpu_time", "cpu.weight": "constrain_cpu_time",
          "io.max": "constrain_io", "io.weight": "constrain_io", "pids.max": "constrain_processes"}  # fmt: skip
_HUGE_PAGES = "hugetlb_max"
_PLUGIN = "task/cgroup"
_GIVES_DEVICES = "task/affinity"


class CannotConstrain(Exception):
    """The error of a constraint set to `yes` but impossible to enforce; str() is a line."""


def wants_cgroups(config: Config) -> bool:
    """Return True if steps are to have cgroups."""
    return config.proctrack_type == "proctrack/cgroup" or _PLUGIN in config.task_plugin


class CgroupConfinement(NamedTuple):
    """The confinement of a cgroup: files, with the text to write a line at a time, and rules for devices."""

    files: dict[str, str]
    device_rules: device_access.Rules


class Constraints:
    """The constraints in force.

    `total` is the machine's memory in MiB, `complaints` says which constraints are not enforced and why. For memory of
    GPUs, which few machines share, `gpu_memory_complaint` does, "" for none.
    """

    def __init__(self, config: Config, base: delegation.Base) -> None:
        self._config = config
        self._mount = base.mount
        self.total = config.real_memory or _machine_memory()
        self.controllers = base.controllers
        self.complaints: list[str] = []
        self.gpu_memory_complaint = ""
        self._why: dict[str, str] = {}  # of what is not enforced
        self._kept = {key for key, controller in _CONTROLLERS.items() if self._keeps(key, controller, base)}
        group = tree.Group(base.mount + base.path)
        self._files = {name for name, key in _FILES.items() if key in self._kept and group.has(name)}
        try:
            self.most_shares = shares.configured(config)
        except shares.BadShare as error:
            raise CannotConstrain(f"{error.parameter}: {error}") from None
        huge_pages = [name for name in self.most_shares if shares.parameter_of(name) == _HUGE_PAGES]
        _check_huge_pages(huge_pages, group, base)
        self._files.update(huge_pages)
        unkept = {name.split()[0] for name in self.most_shares} - self._files
        self.complaints += [f"{name}: not enforced: {self.why_not(name)}" for name in sorted(unkept)]
        if shares.PIDS_MAX in self._files:
            self.most_shares[shares.PIDS_MAX] = config.max_processes_per_step or most_threads() // 2

    def _keeps(self, key: str, controller: str, base: delegation.Base) -> bool:
        wish = getattr(self._config, key)
        why = f"{key} = no"
        if wish != "no":
            why = self._missing(key, controller, base)
            if why and wish == "yes":
                raise CannotConstrain(f"{key} = yes: {why} (`nodectl doctor` tells more; auto goes without)")
            complaint = f"{key}: not enforced: {why}" if why else ""
            if key == _GPU_MEMORY:
                self.gpu_memory_complaint = complaint
            elif complaint:
                self.complaints.append(complaint)
        self._why[key] = why
        return not why

    def _missing(self, key: str, controller: str, base: delegation.Base) -> str:
        if _PLUGIN not in self._config.task_plugin:
            return f"{_PLUGIN} is not in task_plugin"
        if controller == _BPF and _GIVES_DEVICES not in self._config.task_plugin:
            return f"{_GIVES_DEVICES}, which gives devices to jobs, is not in task_plugin"
        if controller == _BPF and base.path:
            return cannot_decide_devices()
        if controller not in base.controllers:
            return _not_there(controller, base)
        if key == "constrain_swap_space" and not _limits_swap(base):
            return "the kernel does not account for swap space"
        return ""

    def why_not(self, file: str) -> str:
        """Return why a file of memory or of a share is not written, "" if written."""
        if file in self._files:
            return ""
        if shares.parameter_of(file) == _HUGE_PAGES:
            return f"{_HUGE_PAGES} of the configuration does not name this size"
        key = _FILES.get(file, "constrain_ram_space")
        if self._why[key] or key == "constrain_ram_space":
            return self._why[key]
        return f"{key}: the kernel has no {file}"

    def shares_of(self, given: Mapping[str, int], *, is_root: bool) -> dict[str, int]:
        """Return a job's shares: the given shares, and otherwise the configured shares. Raises BadShare.

        Only root may be given more than the configured shares.
        """
        wanted = {**self.most_shares, **given}
        more = "" if is_root else shares.beyond(wanted, self.most_shares)
        if more:
            reason = f"{shares.said(more, wanted)}: only root may exceed {shares.said(more, self.most_shares)}"
            raise shares.BadShare(shares.parameter_of(more), f"{reason} of the configuration")
        return {name: number for name, number in wanted.items() if name in given or name.split()[0] in self._files}

    def of_job(self, step: Step) -> CgroupConfinement:
        """Return the confinement of a step's job."""
        if step.part is not None:  # of a job that is not this node's alone: its limits are the allocation's to set
            wanted = shares.files({}, _OWN)
            files = self._cpuset(step.allocation, "") | self._there(wanted)
            return CgroupConfinement(self._within(step, files), [])
        files = self._limits(step, step.allocation, "", _OWN) | self._gpu_memory(step)
        return CgroupConfinement(files, device_access.of_job(*self._devices(step)))

    def of_step(self, step: Step) -> CgroupConfinement:
        """Return the confinement of the step's tasks."""
        files = self._limits(step, step.step_cpus, step.mems, {})
        if step.oom_kill_step and "constrain_ram_space" in self._kept:
            files["memory.oom.group"] = "1"
        if step.within:  # devices are left to the manager of the job
            return CgroupConfinement(self._within(step, files), [])
        allowed = self._config.allowed_devices if "constrain_devices" in self._kept else ()
        return CgroupConfinement(files, device_access.of_step(*self._devices(step), allowed))

    def of_no_job(self, devices: Sequence[NodeDevice]) -> device_access.Rules:
        """Return the rules for processes of a user outside of jobs, who hold none of the node's devices."""
        if "constrain_devices" not in self._kept:
            return []
        return device_access.of_step(devices, (), self._config.allowed_devices)

    def controllers_of(self, step: Step) -> Sequence[str]:
        """Return the controllers of the cgroup of the step's job. Raises OSError if another manager's job is over."""
        if not step.within:
            return self.controllers
        enabled = tree.Group(self._mount + step.within).core.enabled
        return [name for name in self.controllers if name in enabled]

    def _within(self, step: Step, files: dict[str, str]) -> dict[str, str]:
        """Return the files existing in another manager's job."""
        if not step.within:
            return files
        there = self.controllers_of(step)
        return {name: text for name, text in files.items() if name.partition(".")[0] in there}

    def _limits(self, step: Step, cpus: int, mems: str, more: Mapping[str, int]) -> dict[str, str]:
        ram, swap = "constrain_ram_space" in self._kept, "constrain_swap_space" in self._kept
        files = memory_limits(step.memory, self.total, self._config, ram=ram, swap=swap) if ram or swap else {}
        return files | self._cpuset(cpus, mems) | self._there(shares.files(step.shares, more))

    def _cpuset(self, cpus: int, mems: str) -> dict[str, str]:
        if "constrain_cores" not in self._kept:
            return {}
        return {"cpuset.cpus": format_cpulist(cpus_of(cpus)), **({"cpuset.mems": mems} if mems else {})}

    def _there(self, wanted: Mapping[str, str]) -> dict[str, str]:
        return {name: text for name, text in wanted.items() if name in self._files}

    def _gpu_memory(self, step: Step) -> dict[str, str]:
        lines = dict.fromkeys(line for of_device in self._of_gpus(step).values() for line in of_device)
        return {device_memory.FILE: "\n".join(lines)} if lines else {}

    def _of_gpus(self, step: Step) -> dict[str, list[str]]:
        if _GPU_MEMORY not in self._kept or step.binder is None or not step.devices:
            return {}
        try:
            with open(f"{self._mount}/{device_memory.CAPACITY}", encoding="ascii") as file:
                regions = file.readlines()
        except OSError:
            regions = []
        return device_memory.limits(step.binder.node_devices, step.devices, regions)

    def check_gpu_memory(self, step: Step) -> str:
        """Return why nothing limits the step's part of a GPU's memory, "" if it is limited or has none.

        Raises CannotConstrain where the configuration has `yes`.
        """
        bare = [device for device, lines in self._of_gpus(step).items() if not lines]
        if not bare:
            return ""
        why = f"{', '.join(bare)}: its driver has no region in {self._mount}/{device_memory.CAPACITY}"
        if self._config.constrain_gpu_memory == "yes":
            raise CannotConstrain(f"{_GPU_MEMORY} = yes: {why} (auto goes without)")
        return f"{_GPU_MEMORY}: not enforced: {why}"

    def _devices(self, step: Step) -> tuple[Sequence[NodeDevice], Sequence[str]]:
        """Return the node's confined devices, and the devices held by the step's job."""
        known = step.binder.node_devices if step.binder is not None and "constrain_devices" in self._kept else ()
        return known, step.devices


def memory_limits(memory: int, total: int, config: Config, *, ram: bool, swap: bool) -> dict[str, str]:
    """Return the memory limits by Slurm's formulas: `memory` MiB were asked for (0: none), the machine has `total`.

    Returns {} for a job that asked for none and may have all.
    """
    percent = config.allowed_ram_space if ram else 100
    most = total * config.max_ram_percent / 100
    hard = _clamped(memory * percent / 100 if memory else total, config.min_ram_space, most)
    soft = min(_clamped(memory or total, config.min_ram_space, most), hard)
    both = hard + (memory or total) * config.allowed_swap_space / 100
    both = _clamped(both, config.min_ram_space, total * (config.max_ram_percent + config.max_swap_percent) / 100)
    if not ram:
        hard = soft = both
    if not memory and not swap and hard >= total:
        return {}
    files = {"memory.max": str(int(hard * _MIB)), "memory.high": str(int(soft * _MIB))}
    if swap:
        files["memory.swap.max"] = str(int(max(both - hard, 0) * _MIB))
    return files


def _clamped(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)


def wanted_controllers(config: Config) -> list[str]:
    """Return the controllers needed by the configuration's constraints."""
    wanted = [controller for key, controller in _CONTROLLERS.items() if getattr(config, key) != "no"]
    wanted += ["hugetlb"] if config.hugetlb_max else []
    return [controller for controller in dict.fromkeys(wanted) if controller != _BPF]


def is_memory_shared(devices: Iterable[NodeDevice]) -> bool:
    """Return True where jobs can have a part of a device's memory."""
    return any(device.memory for device in devices)


def cannot_decide_devices() -> str:
    """Return why no program can decide about devices here, "" if a program can.

    The kernel is given a program without a cgroup as a test.
    """
    try:
        _kernel.constrain_devices(-1, [])
    except OSError as error:
        return "" if error.errno == errno.EBADF else str(error.strerror)
    return ""


def _not_there(controller: str, base: delegation.Base) -> str:
    return f"{controller}: {base.missing.get(controller, 'no cgroup2 file system is mounted')}"


def _check_huge_pages(files: Sequence[str], group: tree.Group, base: delegation.Base) -> None:
    """Check the configured sizes of huge pages. Raises CannotConstrain."""
    if files and "hugetlb" not in base.controllers:
        raise CannotConstrain(f"{_HUGE_PAGES}: {_not_there('hugetlb', base)}")
    for file in files:
        if not group.has(file):
            raise CannotConstrain(f"{_HUGE_PAGES}: {file}: the kernel has no huge pages of that size")


def _limits_swap(base: delegation.Base) -> bool:
    """Return True if the base has a memory.swap.max. The root has no such file, and /proc/swaps does not show this."""
    return tree.Group(base.mount + base.path).has("memory.swap.max")


def _machine_memory() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // _MIB
