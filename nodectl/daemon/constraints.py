"""What steps are confined to: the constraints of the configuration against what the machine has, and the limits of one
job and its step.

Names and arithmetic are Slurm's (cgroup.conf, section "memory"). The daemon decides, plugins write.
"""

import os

from nodectl import cgroup
from nodectl.config import Config
from nodectl.cpu_list import cpus_of, format_cpulist
from nodectl.daemon import cgroup_base
from nodectl.step import Step

_MIB = 1 << 20
_OWN_PROCESSES = 64  # step runners, prologs
_CONTROLLERS = {
    "constrain_cores": "cpuset",
    "constrain_ram_space": "memory",
    "constrain_swap_space": "memory",
    "constrain_processes": "pids",
}
_PLUGIN = "task/cgroup"


class CannotConstrain(Exception):
    """A constraint is `yes` and cannot be kept; str() is one line."""


class Constraints:
    """What is in force. `total` is the machine's memory in MiB, `complaints` what is not enforced and why."""

    def __init__(self, config: Config, base: cgroup_base.Base) -> None:
        self._config = config
        self.total = config.real_memory or _machine_memory()
        self.processes = config.max_processes_per_step or _most_processes() // 2
        self.controllers = base.controllers
        self.complaints: list[str] = []
        self._kept = {key for key, controller in _CONTROLLERS.items() if self._keeps(key, controller, base)}

    def _keeps(self, key: str, controller: str, base: cgroup_base.Base) -> bool:
        wish = getattr(self._config, key)
        if wish == "no":
            return False
        why = ""
        if _PLUGIN not in self._config.task_plugin:
            why = f"{_PLUGIN} is not in task_plugin"
        elif controller not in base.controllers:
            why = f"{controller}: {base.missing.get(controller, 'no cgroup2 file system is mounted')}"
        elif key == "constrain_swap_space" and not _limits_swap(base):
            why = "the kernel does not account for swap space"
        if why and wish == "yes":
            raise CannotConstrain(f"{key} = yes: {why}")
        if why:
            self.complaints.append(f"{key}: not enforced: {why}")
        return not why

    def of_job(self, step: Step) -> dict[str, str]:
        """Files of the cgroup of a step's job, and what is to be written there."""
        files = self._limits(step.memory, step.allocation, "")
        if "pids.max" in files:
            files["pids.max"] = str(self.processes + _OWN_PROCESSES)  # the step's limit is reached first, and tells
        return files

    def of_step(self, step: Step) -> dict[str, str]:
        """Likewise for the cgroup of the step's tasks."""
        files = self._limits(step.memory, step.step_cpus, step.mems)
        if step.oom_kill_step and "constrain_ram_space" in self._kept:
            files["memory.oom.group"] = "1"
        return files

    def _limits(self, memory: int, cpus: int, mems: str) -> dict[str, str]:
        ram, swap = "constrain_ram_space" in self._kept, "constrain_swap_space" in self._kept
        files = memory_limits(memory, self.total, self._config, ram=ram, swap=swap) if ram or swap else {}
        if "constrain_processes" in self._kept:
            files["pids.max"] = str(self.processes)
        if "constrain_cores" in self._kept:
            files["cpuset.cpus"] = format_cpulist(cpus_of(cpus))
            if mems:
                files["cpuset.mems"] = mems
        return files


def memory_limits(memory: int, total: int, config: Config, *, ram: bool, swap: bool) -> dict[str, str]:
    """Slurm's formulas: `memory` MiB were asked for (0: none), the machine has `total`.

    Nothing for who asked for none and may have all.
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
    """The controllers that the configuration's constraints need."""
    wanted = (controller for key, controller in _CONTROLLERS.items() if getattr(config, key) != "no")
    return list(dict.fromkeys(wanted))


def _limits_swap(base: cgroup_base.Base) -> bool:
    """The root has no such file, the base has: /proc/swaps says nothing about it."""
    return cgroup.Group(base.mount + base.path).has("memory.swap.max")


def _machine_memory() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // _MIB


def _most_processes() -> int:
    with open("/proc/sys/kernel/threads-max", encoding="ascii") as file:
        return int(file.read())
