"""The truth about ends: what a step's cgroups say befell it, whatever its tasks' exit statuses tell.

Asked at the end of each task and once more at the end of the step, because the kernel may kill when no task is left.
Runs in the stepd.
"""

import os
import time

from nodectl.stepd import accounting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nodectl.cgroup.tree import Group
    from nodectl.model.step import Task
    from nodectl.stepd.run import Run

_KILL = 9
_EARLIER = 1.0  # seconds: the log's clock is not quite the monotonic one


class Ends:
    """What is known of one step's ends. `reason` is why it ran out of memory, `refused` that it had no more processes;
    "" while it is not so.
    """

    __slots__ = ("_began", "_killed", "_pids", "_run", "_user", "forks_refused", "reason", "refused", "used", "victims")

    def __init__(self, run: "Run") -> None:
        self._run = run
        self._user: Group | None = None if run.group is None else run.group.child("user")
        self._began = time.monotonic() - _EARLIER
        self._pids: set[int] = set()  # victims that have been told of
        self._killed: dict[int, int] = {}  # processes of each task that were killed before it ended
        self.reason = ""
        self.refused = ""
        self.forks_refused = 0
        self.victims: list[dict[str, object]] = []
        self.used: dict[str, object] = {}

    def task(self, task: "Task") -> None:
        """A task has ended: whether the kernel killed in it, which its exit is told with."""
        if self._user is None:
            return
        befallen = accounting.Befallen(self._group(task))
        self.forks_refused += befallen.forks_refused or 0
        if befallen.oom_kills is None:
            if _is_killed(task) and not task.killed_by_command:
                self._look_for(task)
        elif befallen.oom_kills:
            self._killed[task.local_id] = befallen.oom_kills
            self._out_of_memory(task, befallen.oom_kills)

    def step(self) -> None:
        """The step is over, its cgroups are still there: its figures and its tasks'."""
        if self._user is None:
            return
        befallen = accounting.Befallen(self._user)
        killed = befallen.oom_kills or 0
        if killed > sum(self._killed.values()):
            self._look_again()
        if killed and not self.reason:
            self._tell(f"the kernel killed {killed} of its processes")
        self.forks_refused = max(self.forks_refused, befallen.forks_refused or 0)
        if self.forks_refused:
            limit = self._run.step.limits.get("pids.max", "")
            self.refused = f"reached its limit of {limit} processes and threads: {self.forks_refused} refused"
            self._run.say(self.refused)
            befallen.forks_refused = self.forks_refused
        self.used = accounting.figures(self._user, befallen, self._run.step.limits)
        for task in self._run.tasks:
            task.used = self.used if len(self._run.tasks) == 1 else self._figures(task)

    def _look_again(self) -> None:
        """What tasks left behind may have been killed after them."""
        for task in self._run.tasks:
            count = accounting.Befallen(self._group(task)).oom_kills or 0
            if count > self._killed.get(task.local_id, 0):
                self._out_of_memory(task, count)

    def _group(self, task: "Task") -> "Group":
        assert self._user is not None  # noqa: S101  # asked where there is one
        return self._user.child(f"task_{task.local_id}")

    def _figures(self, task: "Task") -> dict[str, object]:
        group = self._group(task)
        return accounting.figures(group, accounting.Befallen(group), self._run.step.limits)

    def _out_of_memory(self, task: "Task", count: int) -> None:
        told, task.out_of_memory = task.out_of_memory, True
        place = f"{self._run.step.cgroup}/user/task_{task.local_id}"
        # The log has up to two lines of each, of which the first tells more.
        lines = [one for one in accounting.victims(self._began) if self._is_here(one, task, place)]
        named = list({one.pid: one for one in reversed(lines)}.values())[::-1]
        for one in named:
            self._pids.add(one.pid)
            self.victims.append({"task": task.local_id, "pid": one.pid, "name": one.name})
        if told:
            return  # where all of a step is killed, that goes on after its task's end
        if named:
            more = f" and {count - 1} more" if count > 1 else ""
            who = f"process {named[0].pid} ({named[0].name}){more}"
            self._tell(f"task {task.local_id}: killed {who}{self._limit(named[0])}")
        elif _is_killed(task):
            self._tell(f"task {task.local_id}: killed process {task.pid}")
        else:
            self._tell(f"task {task.local_id}: killed {count} of its processes")

    def _is_here(self, one: accounting.Victim, task: "Task", place: str) -> bool:
        if one.pid in self._pids:
            return False
        return one.place.endswith(place) if one.place else one.pid == task.pid

    def _look_for(self, task: "Task") -> None:
        """Where cgroup2 has no memory controller, the log alone knows: v1's limits, or the machine had no more."""
        for one in accounting.victims(self._began):
            if one.pid == task.pid:
                self.victim(task, one.pid, one.name)

    def victim(self, task: "Task", pid: int, name: str) -> None:
        """The kernel's log names a process of this task, and no counter does."""
        if pid in self._pids:
            return
        self._pids.add(pid)
        task.out_of_memory = True
        self.victims.append({"task": task.local_id, "pid": pid, "name": name})
        self._tell(f"task {task.local_id}: killed process {pid} ({name})")

    def _limit(self, one: accounting.Victim) -> str:
        """Whose limit it was, where it was ours."""
        step = self._run.step
        limit = step.limits.get("memory.max")
        if limit is None or not one.limit_of.endswith((f"{step.cgroup}/user", os.path.dirname(step.cgroup))):
            return ""
        return f" at the limit of {int(limit) >> 20} MiB"

    def _tell(self, what: str) -> None:
        reason = f"out of memory: {what}"
        self._run.say(reason)
        self.reason = self.reason or reason


def _is_killed(task: "Task") -> bool:
    return task.status is not None and os.WIFSIGNALED(task.status) and os.WTERMSIG(task.status) == _KILL
