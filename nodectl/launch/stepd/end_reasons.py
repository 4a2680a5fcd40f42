"""The reasons why a step and its tasks ended: out of memory, out of processes. An exit status does not show these.

The step's cgroups know. A step without cgroups may share a cgroup with others, whose counter of kills tells when it was
read in time. The stepd asks at the end of each task and once more at the end of the step, because the kernel may kill
when no task is left.
"""

import os
import time

from nodectl.launch.cgroup import out_of_memory
from nodectl.launch.stepd import accounting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nodectl.launch.cgroup.tree import Group
    from nodectl.model.step import Step, Task

_KILL = 9
_OF_SHELL = 128  # plus the signal: the exit code of a shell whose last program was killed
_EARLIER = 1.0  # seconds: the log's clock is not quite the monotonic one
_LONG = 1.0  # seconds; the pressure of tasks that ran for less says nothing


class EndReasons:
    """The findings about a step's end.

    `reason` says how the step ran out of memory, `refused` that the kernel refused it more processes; each is "" until
    then. `victims` are the processes that the kernel killed, `used` are the step's figures.
    """

    __slots__ = (
        "_around", "_began", "_controllers", "_killed", "_killed_around", "_pids", "_say", "_step", "_tasks", "_user",
        "forks_refused", "reason", "refused", "used", "victims",
    )  # fmt: skip

    def __init__(
        self, step: "Step", tasks: "Sequence[Task]", group: "Group | None", say: "Callable[[str], None]", around: str
    ) -> None:
        """Begin with the counters of the step's start.

        `group` is the step's cgroup. Without it, `around` is the directory of the cgroup that the step shares with
        others, "" for none. `say` sends a text to the step's user.
        """
        self._step = step
        self._tasks = tasks
        self._say = say
        self._user: Group | None = None if group is None else group.child("user")
        self._around = "" if group is not None else around
        self._killed_around = out_of_memory.kills(self._around) if self._around else None  # old or reported
        self._began = time.monotonic() - _EARLIER
        self._controllers: frozenset[str] | None = None  # of `_user`; those below have no others
        self._pids: set[int] = set()  # of victims that the user knows of
        self._killed: dict[int, int] = {}  # processes of each task that were killed before it ended
        self.reason = ""
        self.refused = ""
        self.forks_refused = 0
        self.victims: list[dict[str, object]] = []
        self.used: dict[str, object] = {}

    def task_ended(self, task: "Task") -> None:
        """Find out whether the kernel killed a process of the task."""
        if self._user is None:
            self._look_around(task)
            return
        events = self._events(self._group(task))
        self.forks_refused += events.forks_refused or 0
        if events.oom_kills is None:
            if _is_killed(task) and not task.killed_by_command:
                self._search_log(task)
        elif events.oom_kills:
            self._killed[task.local_id] = events.oom_kills
            self._out_of_memory(task, events.oom_kills)

    def _look_around(self, task: "Task") -> None:
        """Find out whether the kernel killed a process of a task in a shared cgroup.

        The counter does not say whose process was killed: a process that was killed, and not by us, is assumed to be
        the victim.
        """
        if self._killed_around is None or task.killed_by_command or not (_is_killed(task) or _has_lost_a_child(task)):
            return
        if (out_of_memory.kills(self._around) or 0) <= self._killed_around:
            return
        self._killed_around += 1
        task.out_of_memory = True
        limit = out_of_memory.memory_limit(self._around)
        where = "" if limit is None else f" in a cgroup that is limited to {limit >> 20} MiB"
        who = f"process {task.pid}" if _is_killed(task) else "one of its processes"
        self._tell(f"task {task.number}: killed {who}{where}")

    def step_ended(self) -> None:
        """Read the figures of the step and of the tasks. The cgroups must still be there."""
        if self._user is None:
            return
        events = self._events(self._user)
        killed = events.oom_kills or 0
        if killed > sum(self._killed.values()):
            self._check_tasks_again()
        if killed and not self.reason:
            self._tell(f"the kernel killed {killed} of its processes")
        self.forks_refused = max(self.forks_refused, events.forks_refused or 0)
        if self.forks_refused:
            limit = self._step.limits.get("pids.max", "")
            self.refused = f"reached its limit of {limit} processes and threads: {self.forks_refused} refused"
            self._say(self.refused)
            events.forks_refused = self.forks_refused
        self.used = accounting.figures(self._user, events, self._step.limits)
        if self._step.bulk:
            return  # those of its tasks were read at the end of each command
        for task in self._tasks:
            task.used = self.used if len(self._tasks) == 1 else self._figures(task)

    def _check_tasks_again(self) -> None:
        """Count processes left behind by a task and killed by the kernel after the task's end."""
        for task in self._tasks:
            count = self._events(self._group(task)).oom_kills or 0
            if count > self._killed.get(task.local_id, 0):
                self._out_of_memory(task, count)

    def _group(self, task: "Task") -> "Group":
        assert self._user is not None  # noqa: S101  # asked where there is one
        return self._user.child(f"task_{task.local_id}")

    def _figures(self, task: "Task") -> dict[str, object]:
        group = self._group(task)
        is_long = time.monotonic() - self._began > _EARLIER + _LONG
        return accounting.figures(group, self._events(group), self._step.limits, with_pressure=is_long)

    def _events(self, group: "Group") -> accounting.KernelEvents:
        """Return the kernel's events in the cgroup of the step's processes, or in a task's."""
        if self._controllers is None:
            assert self._user is not None  # noqa: S101  # asked where there is one
            self._controllers = accounting.controllers_of(self._user)
        return accounting.KernelEvents(group, self._controllers)

    def _out_of_memory(self, task: "Task", count: int) -> None:
        known, task.out_of_memory = task.out_of_memory, True
        cgroup = f"{self._step.cgroup}/user/task_{task.local_id}"
        # The log has up to two lines for each victim; the first one tells more.
        lines = [one for one in out_of_memory.victims(self._began) if self._is_new(one, task, cgroup)]
        named = list({one.pid: one for one in reversed(lines)}.values())[::-1]
        for one in named:
            self._pids.add(one.pid)
            self.victims.append({"task": task.number, "pid": one.pid, "name": one.name})
        if known:
            return  # the kernel goes on killing after the task's end where it kills the whole step
        if named:
            more = f" and {count - 1} more" if count > 1 else ""
            who = f"process {named[0].pid} ({named[0].name}){more}"
            self._tell(f"task {task.number}: killed {who}{self._limit(named[0])}")
        elif _is_killed(task):
            self._tell(f"task {task.number}: killed process {task.pid}")
        else:
            self._tell(f"task {task.number}: killed {count} of its processes")

    def _is_new(self, one: out_of_memory.Victim, task: "Task", cgroup: str) -> bool:
        if one.pid in self._pids:
            return False
        return one.cgroup.endswith(cgroup) if one.cgroup else one.pid == task.pid

    def _search_log(self, task: "Task") -> None:
        """Search the kernel's log for the task, where cgroup2's memory controller is missing.

        Only the log knows then: a limit of v1, or the machine ran out of memory.
        """
        for one in out_of_memory.victims(self._began):
            if one.pid == task.pid:
                self.add_victim(task, one.pid, one.name)

    def add_victim(self, task: "Task", pid: int, name: str) -> None:
        """Add a process of the task, named by the kernel's log and counted by no counter."""
        if pid in self._pids:
            return
        self._pids.add(pid)
        task.out_of_memory = True
        self.victims.append({"task": task.number, "pid": pid, "name": name})
        self._tell(f"task {task.number}: killed process {pid} ({name})")

    def _limit(self, one: out_of_memory.Victim) -> str:
        """Return words for the limit of the victim, where the limit is the step's or the job's."""
        limit = self._step.limits.get("memory.max")
        if limit is None or not one.limit_of.endswith(
            (f"{self._step.cgroup}/user", os.path.dirname(self._step.cgroup))
        ):
            return ""
        return f" at the limit of {int(limit) >> 20} MiB"

    def _tell(self, what: str) -> None:
        reason = f"out of memory: {what}"
        self._say(reason)
        self.reason = self.reason or reason


def _is_killed(task: "Task") -> bool:
    return task.status is not None and os.WIFSIGNALED(task.status) and os.WTERMSIG(task.status) == _KILL


def _has_lost_a_child(task: "Task") -> bool:
    return task.status is not None and os.WIFEXITED(task.status) and os.WEXITSTATUS(task.status) == _OF_SHELL + _KILL
