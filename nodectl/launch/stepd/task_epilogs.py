"""The scripts after a task, as the user: first the user's --task-epilog, with a limit, then the site's TaskEpilog.

What a script writes to standard error, up to a limit, goes to the step's user at the script's end, as with Slurm. The
reaper's loop reads it from a pipe and drops the rest: so neither the script waits for the stepd, nor the stepd for what
the script has left behind.

Runs in the stepd, as root. Scripts of several tasks run side by side, up to a number; the reaper's loop collects them,
so that the stepd answers meanwhile. They are in the cgroup `step_S/epilog`. There they have the job's limits and the
task's device rules, but are not frozen when the step is suspended. Processes left behind by a script are killed. A step
that must not outlive the process that asked for it runs no script after the end of this process: the step's resources
are another's by then.
"""

import os
import select
import time

from nodectl import messages
from nodectl.kernel import children, signals
from nodectl.launch.confine import scripts
from nodectl.launch.confine.confinement import Confinement
from nodectl.launch.stepd.plugin_output import lines_of
from nodectl.launch.task import users_process
from nodectl.model import launch_order
from nodectl.model.wire import framing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from nodectl.launch.cgroup.tree import Group
    from nodectl.launch.stepd.run import Run
    from nodectl.model.step import Task

_MOST = 32  # scripts at a time; each is a process of the job
_MOST_ERRORS = 1 << 14  # bytes of a script's standard error that are passed on
_PIECE = 1 << 16  # bytes of it that are read at a time
_MOST_LEFT = 16  # pieces that are read after the script's end; a pipe holds one
_MOST_UNREAD = 1 << 20  # bytes that the launching client has not read: it gets no such lines on top


class _Scripts:
    """The scripts of a task: the running script and the remaining scripts. Times are of the monotonic clock."""

    __slots__ = (
        "cgroup", "due", "errors", "is_late", "killed", "left", "limit", "path", "pid", "said", "size", "started",
        "task",
    )  # fmt: skip

    def __init__(self, task: "Task", left: "list[tuple[str, float]]") -> None:
        self.task = task
        self.left = left
        self.cgroup: Group | None = None
        self.pid = 0
        self.errors = -1  # the pipe of its standard error
        self.said = b""  # the beginning of what came from there, and the size of all of it
        self.size = 0
        self.path = ""
        self.limit = 0.0  # seconds, 0 for none
        self.started = 0  # for the trace
        self.due: float | None = None  # when to kill it or, after that, to stop waiting for it
        self.killed = self.is_late = False


class TaskEpilogs:
    """The epilog scripts of a step's tasks. `over(task)` is called after the last script of a task."""

    __slots__ = ("_by_pipe", "_end", "_over", "_poll", "_run", "_running", "_waiting")

    def __init__(self, run: "Run", poll: "select.poll", over: "Callable[[Task], None]") -> None:
        self._run = run
        self._poll = poll
        self._over = over
        self._by_pipe: dict[int, _Scripts] = {}  # whose pipes are polled
        self._running: dict[int, _Scripts] = {}  # by pid
        self._waiting: list[_Scripts] = []
        self._end: float | None = None  # deadline of scripts that begin after the step was killed

    def any(self) -> bool:
        """Return True while scripts run or wait."""
        return bool(self._running or self._waiting)

    def begin(self, task: "Task") -> bool:
        """Start the scripts of an ended task. Returns False without scripts; `over` is not called then."""
        if not self._run.step.task_epilogs or _owner_has_ended(self._run):
            return False
        self._waiting.append(_Scripts(task, list(self._run.step.task_epilogs)))
        self._fill()
        return True

    def patience(self) -> float | None:
        """Return the seconds until `act` has something to do; None for never."""
        times = [work.due for work in self._running.values() if work.due is not None]
        return max(0.0, min(times) - time.monotonic()) if times else None

    def act(self) -> None:
        """Kill scripts past the time limit. Stop waiting for killed scripts not ended by SIGKILL."""
        now = time.monotonic()
        for work in [work for work in self._running.values() if work.due is not None and work.due <= now]:
            if not work.killed:
                work.is_late = True
                self._kill(work)
                continue
            del self._running[work.pid]  # it hangs in the kernel
            self._pass_on(work)
            self._tell(work, f"process {work.pid} does not die", 1)
            self._next(work)
        self._fill()

    def reads(self, fd: int) -> bool:
        """Read from the pipe of a script. Returns False if `fd` is no such pipe."""
        work = self._by_pipe.get(fd)
        if work is not None and not _read(work):
            self._forget(work)
        return work is not None

    def kill(self) -> bool:
        """Kill the running scripts and drop waiting scripts, because the step is killed. Returns False without scripts.

        The scripts of tasks that have not ended yet have kill_wait seconds from now on.
        """
        was_any = self.any()
        self._end = time.monotonic() + self._run.step.kill_wait
        waiting, self._waiting = self._waiting, []
        for work in self._running.values():
            work.left.clear()
            self._kill(work)
        for work in waiting:
            self._over(work.task)
        return was_any

    def give_up(self) -> "list[Task]":
        """Stop waiting for scripts not ended by SIGKILL. Returns the tasks of the scripts, without calling `over`."""
        for work in self._running.values():
            self._kill(work)
            self._pass_on(work)
        tasks = [work.task for work in (*self._running.values(), *self._waiting)]
        self._running.clear()
        self._waiting.clear()
        return tasks

    def ends(self, pid: int) -> bool:
        """Kill the process group of an ended script. Returns False if `pid` is no script.

        Called before the status of the script is collected: until then the group's number belongs to the script.
        """
        if pid not in self._running:
            return False
        signals.send_group_of_child(pid, signals.KILL)
        return True

    def ended(self, pid: int, status: int) -> None:
        """Report the end of a script, after the collection of the status, and start the next script."""
        work = self._running.pop(pid)
        self._pass_on(work)
        why = children.said(status) if status else ""
        if work.is_late and why:
            why = f"had not ended after {work.limit:g} s and was killed"
        code = os.waitstatus_to_exitcode(status)
        if _owner_has_ended(self._run):
            work.left.clear()
        else:
            self._tell(work, why, code)
        self._next(work)
        self._fill()

    def lost(self, collected: "list[tuple[int, int]]") -> "list[tuple[int, int]]":
        """Return pids, with status 0, of the scripts without a known status: a plugin has taken the statuses.

        Called when the stepd has no child any more. `collected` are the scripts collected just now.
        """
        known = {pid for pid, _ in collected}
        return [(pid, 0) for pid in self._running if pid not in known]

    def _fill(self) -> None:
        while self._waiting and len(self._running) < _MOST:
            work = self._waiting.pop(0)
            try:
                work.cgroup = _make_cgroup(self._run, work.task)
            except OSError as error:
                messages.error(f"step {self._run.step}: task epilogs: confine them: {error.strerror}")
                work.left.clear()
            self._next(work)

    def _next(self, work: _Scripts) -> None:
        while work.left:
            work.path, work.limit = work.left.pop(0)
            work.started = self._run.enter(launch_order.TASK_EPILOG)
            try:
                self._start(work)
            except OSError as error:  # the job may have reached its limit of processes
                self._tell(work, str(error.strerror), error.errno or 1)
            else:
                return
        if work.cgroup is not None:
            work.cgroup.kill_all()
            work.cgroup.remove()  # or the daemon does, with the step's
        self._over(work.task)

    def _start(self, work: _Scripts) -> None:
        """Start the next script. Raises OSError."""
        run, step = self._run, self._run.step
        environment = {**work.task.environment, "SLURM_SCRIPT_CONTEXT": "epilog_task"}
        confinement = Confinement(step, environment)

        def become() -> bool:
            return users_process.become(step, confinement, group=work.cgroup, enter=run.enter_container)

        work.errors, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        work.said, work.size = b"", 0
        run.private.append(work.errors)
        self._by_pipe[work.errors] = work
        self._poll.register(work.errors, select.POLLIN)
        try:
            os.set_blocking(writer, True)
            os.fchown(writer, step.uid, -1)  # so that the script can open /dev/stderr
            work.pid = scripts.start_as(
                work.path, environment, step.cwd, errors=writer, become=become, confinement=confinement
            )
        except OSError:
            self._pass_on(work)
            raise
        finally:
            os.close(writer)
        step.helpers.add(work.pid)
        self._running[work.pid] = work
        work.killed = work.is_late = False
        work.due = time.monotonic() + work.limit if work.limit else None
        if self._end is not None:
            work.due = self._end if work.due is None else min(self._end, work.due)

    def _pass_on(self, work: _Scripts) -> None:
        """Send what the script has written to the step's user, and close the pipe."""
        pieces = _MOST_LEFT
        while pieces and work.errors in self._by_pipe and _read(work):
            pieces -= 1
        self._forget(work)
        fd, work.errors = work.errors, -1
        self._run.private.remove(fd)
        os.close(fd)
        text = "\n".join(lines_of(work.said, work.size))
        if not text:
            return
        if self._run.links.launcher_backlog() > _MOST_UNREAD:
            messages.error(f"step {self._run.step}: task {work.task.number}: its client reads nothing: {text[:80]!r}")
        else:
            self._run.links.broadcast_line(text)

    def _forget(self, work: _Scripts) -> None:
        if self._by_pipe.pop(work.errors, None) is not None:
            self._poll.unregister(work.errors)

    def _kill(self, work: _Scripts) -> None:
        if work.killed:
            return
        work.killed = True
        work.due = time.monotonic() + self._run.step.unkillable_timeout
        signals.send_group_of_child(work.pid, signals.KILL)
        if work.cgroup is not None:
            work.cgroup.kill_all()

    def _tell(self, work: _Scripts, why: str, code: int) -> None:
        if why:
            messages.error(f"step {self._run.step}: task {work.task.number}: task epilog {work.path!r}: {why}")
        rc = code if code >= 0 else 1
        self._run.leave(launch_order.TASK_EPILOG, work.started, task=work.task.number, rc=rc, note=work.path)


def _read(work: _Scripts) -> bool:
    """Read a piece of the script's output, if there is one. Returns False at the end of the output."""
    try:
        data = os.read(work.errors, _PIECE)
    except BlockingIOError:
        return True
    work.size += len(data)
    work.said += data[: _MOST_ERRORS - len(work.said)]
    return bool(data)


def _owner_has_ended(run: "Run") -> bool:
    return run.fds.lifeline >= 0 and not framing.runs(run.fds.lifeline)


def _make_cgroup(run: "Run", task: "Task") -> "Group | None":
    """Make and return the cgroup of a task's scripts; None without cgroups. Raises OSError."""
    if run.group is None:
        return None
    cgroup = run.group.child("epilog").make()
    if run.step.device_rules:
        cgroup.confine_devices(run.step.device_rules)
    return cgroup.child(f"task_{task.local_id}").make()
