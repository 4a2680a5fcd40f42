"""The starts, ends and timeouts of a bulk step's commands, and the events for the client.

No command starts while the client does not read its events. Processes left behind by a command in its cgroup are killed
at the command's end, and the slot is free when they have gone. Runs in the stepd, as root; the reaper's loop calls it.
"""

import gc
import os
import time

from nodectl.bulk.runner.tally import Tally
from nodectl.bulk.runner.task import TRACED, BulkTask, Starter
from nodectl.bulk.runner.window import Window, WindowBroken
from nodectl.kernel import signals
from nodectl.launch.cgroup import out_of_memory
from nodectl.launch.stepd import accounting
from nodectl.launch.stepd.bulk_commands import commands_in
from nodectl.model.states import FAILED, OUT_OF_MEMORY, RUNNING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nodectl.launch.cgroup.tree import Group
    from nodectl.launch.stepd.reaper import Reaper
    from nodectl.launch.stepd.run import Run
    from nodectl.model.step import Task

_NOT_READ = 1 << 16  # bytes of events that the client has not read: then nothing more is begun
_BETWEEN_COLLECTIONS = 512  # commands; a stepd collects no cycles by itself
_PAUSE = 0.01  # seconds between two events
_SERVICE_FIRST, _SERVICE_EVERY = 0.5, 2.0  # seconds until the service is told the counts, and told again
_FIRST_LOOK, _LAST_LOOK = 0.001, 0.05  # seconds between two looks at a cgroup that is not empty
_FAILED = 1 << 8
_NO_ROOM = (11, 12)  # EAGAIN, ENOMEM: another command's end may help


class Bulk:
    """The commands of a bulk step.

    `sums` are the tasks of the step's record: one for each slot, with the sum of all commands that ran there.
    """

    __slots__ = (
        "_begun", "_ended", "_knows_memory", "_left", "_look", "_others", "_reaper", "_run", "_service_knows",
        "_service_next", "_service_waits", "_told_at", "_user", "_withdrew", "closed", "free", "keeps_cgroups", "lanes",
        "running", "sums", "tally", "window",
    )  # fmt: skip

    def __init__(self, run: "Run", reaper: "Reaper") -> None:
        self._run = run
        self._reaper = reaper
        self._user = None if run.group is None else run.group.child("user")
        self._knows_memory = "memory" in accounting.controllers_below(self._user)
        # A slot's cgroup serves one command after the other where nothing is counted in it: to make and to remove one
        # takes a fifth of the rate.
        self.keeps_cgroups = not self._knows_memory and "pids.max" not in run.step.limits
        self.sums: list[Task] = list(run.tasks)
        self.free = [task.local_id for task in reversed(run.tasks)]
        self.window = Window(len(run.tasks))
        self.tally = Tally()
        self.running: dict[int, BulkTask] = {}
        self.lanes: dict[int, object] = {}  # by slot (`lanes.py`): each has the slot's cgroup open, and goes before it
        self.closed = False  # no more commands come
        # Slots that are not empty yet: the cgroup to be emptied, since when, and the command that left processes there.
        self._left: dict[int, tuple[Group | None, float, str]] = {}
        self._look = _FIRST_LOOK
        # Events to be sent to the client.
        self._begun: list[list[int]] = []
        self._ended: list[dict[str, object]] = []
        self._withdrew: list[int] | None = None
        self._told_at = 0.0
        self._others: Mapping[str, int] = {}  # counts of the client's commands that are not here
        self._service_knows: Mapping[str, object] = {}
        self._service_next = time.monotonic() + _SERVICE_FIRST
        self._service_waits = True  # the counts may change without an event that looks at them

    # Requests of the client.

    def take(self, value: "Sequence[object]", others: "Mapping[str, int] | None" = None) -> None:
        """Add commands from the client. Raises BadCommand, WindowBroken: then the step is to end.

        `others`: how many commands `left` are still to come, and how many `done` and `failed` were in earlier steps of
        the same bulk. Only the counts for the service depend on them.
        """
        if self._run.state != RUNNING:
            return
        if self.closed:
            raise WindowBroken("its client sent commands after it had said that no more would come")
        self.window.take(commands_in(value))
        self._others = others or {}

    def withdraw(self) -> None:
        """Drop all commands not yet started. The client gets the numbers of the dropped commands."""
        numbers = self.window.withdraw()
        self.tally.withdrawn(len(numbers))
        self._others = {**self._others, "left": 0}
        self._withdrew = (self._withdrew or []) + numbers

    # The life of the step.

    def goes_on(self) -> bool:
        """Return True while commands run, wait or may come."""
        if self.running:
            return True
        return self._run.state == RUNNING and bool(self.window.waiting or not self.closed)

    def may_begin(self) -> bool:
        """Return True when the next command can be given a slot."""
        return bool(self.free) and self.may_go_on()

    def may_go_on(self) -> bool:
        """Return True when the next command may have the next free slot."""
        run, termination = self._run, self._reaper.termination
        return (
            bool(self.window.waiting)
            and run.state == RUNNING
            and not termination.suspension.suspended
            and not termination.holds_signals()
            and run.links.launcher_backlog() <= _NOT_READ
        )

    def begin(self, starter: Starter) -> None:
        """Start the next command in a free slot. Raises LaunchFailed."""
        run, slot, command = self._run, self.free.pop(), self.window.next()
        task = starter.make(self.sums[slot], command)
        if self.tally.begun == TRACED:
            run.recorder.fd = -1  # the trace of a million commands is no larger
        task.started = run.clock.now()
        run.tasks[slot] = task
        self.running[slot] = task
        try:
            starter.start(task)
        except OSError as error:
            self._never_began(task, error)
            return
        self.began(task)

    def began(self, task: BulkTask) -> None:
        """Count a started command, and queue the report to the client."""
        if task.command.timeout is not None:
            task.deadline = self._now() + task.command.timeout - (self._run.clock.now() - task.started)
        self._run.tasks[task.local_id] = task
        self.running[task.local_id] = task
        self._begun.append([task.command.seq, task.number, task.pid])
        self.tally.begun += 1
        if self.tally.begun % _BETWEEN_COLLECTIONS == 0:
            gc.collect()

    def _never_began(self, task: BulkTask, error: OSError) -> None:
        """Handle a failed fork: the command waits for the end of another command, or fails if there is none."""
        slot = task.local_id
        self._run.preload.task_ended(task)
        self._count_refusals(task)
        if error.errno in _NO_ROOM and (len(self.running) > 1 or self._left):
            del self.running[slot]
            self._run.tasks[slot] = self.sums[slot]
            self.window.put_back(task.command)
            self._leave(slot, task.group, f"command {task.command.seq}")
            return
        self.tally.begun += 1
        task.failure = f"fork: {error.strerror}"
        task.status, task.ended = _FAILED, self._run.clock.now()
        self.ended(task)

    def task_ended(self, task: "Task") -> None:
        """Read peak memory, out-of-memory kills and refused forks from the cgroup of an ended task."""
        assert isinstance(task, BulkTask)  # noqa: S101  # a bulk step has no others
        if task.group is None:
            return
        if self._knows_memory:
            task.peak = accounting.number_in(f"{task.group.full_path}/memory.peak")
            task.out_of_memory |= bool(out_of_memory.kills(task.group.full_path))
        self._count_refusals(task)

    def _count_refusals(self, task: BulkTask) -> None:
        """Add the forks refused in the command's cgroup to the step's, before the cgroup and the count are lost."""
        if task.group is not None and "pids.max" in self._run.step.limits:
            self._run.end_reasons.forks_refused += accounting.KernelEvents(task.group).forks_refused or 0

    def ended(self, task: "Task", *, left_none: bool = False) -> None:
        """Count an ended command after the last hook, queue the report to the client, and empty the slot.

        `left_none`: the cgroup is known to be empty, and serves the next command.
        """
        slot, run = task.local_id, self._run
        if not isinstance(task, BulkTask) or self.running.get(slot) is not task:
            return  # given up before
        del self.running[slot]
        task.failure = run.failures.pop(task.number, task.failure)
        alone = left_none or (task.group is not None and self._is_free(task, task.group))
        told = self._told(task)
        if alone:
            told["alone"] = True  # no process of it is left that could still write output
        self._ended.append(told)
        self.tally.ended(told, task.argv)
        self.window.ended(task.command.seq)
        task.child = task.lane = None  # each holds the other, and its memory would wait for a collection
        run.tasks[slot] = _add(self.sums[slot], task)
        if task.out_of_memory and run.step.oom_kill_step:
            self._reaper.termination.end(OUT_OF_MEMORY, f"out of memory: command {task.command.seq}")
        if task.group is None or alone:
            self.free.append(slot)
            return
        task.group.kill_all()
        self._leave(slot, task.group, f"command {task.command.seq}")

    def _leave(self, slot: int, group: "Group | None", whose: str) -> None:
        """Have the slot emptied of what a command left there."""
        self.lanes.pop(slot, None)
        self._left[slot] = (group, time.monotonic(), whose)
        self._look = _FIRST_LOOK

    def _is_free(self, task: BulkTask, group: "Group") -> bool:
        """Return True if nothing of the command is left in the cgroup, which now serves the next command or is removed.

        It must be removed if something may have been written to its cgroup.kill: the kernel would kill any process born
        there.
        """
        is_killed = task.kills or os.WTERMSIG(task.status or 0) == signals.KILL
        if self.keeps_cgroups and not is_killed:
            return not group.populated()
        self.lanes.pop(task.local_id, None)
        return group.remove()

    def killed(self) -> None:
        """Remove the cgroups of free slots after a kill of the whole step by cgroup.kill.

        No cgroup used before the kill serves a later command.
        """
        self.keeps_cgroups = False
        self.lanes.clear()
        if self._user is None:
            return
        free, self.free = self.free, []
        for slot in free:
            group = self._user.child(f"task_{slot}")
            if group.remove():
                self.free.append(slot)
            else:
                self._leave(slot, group, "an earlier command")

    def _told(self, task: BulkTask) -> dict[str, object]:
        user, system, resident = task.usage
        told: dict[str, object] = {
            "seq": task.command.seq, "slot": task.number, "status": task.status, "started": round(task.started, 6),
            "seconds": round(max(0.0, task.ended - task.started), 6), "user": round(user, 6),
            "system": round(system, 6), "memory": resident if task.peak is None else task.peak >> 10,
            "read": task.transferred[0], "written": task.transferred[1],
        }  # fmt: skip
        if task.pid > 0:
            told["pid"] = task.pid
        if task.failure:
            told["failed"] = task.failure
        if task.kills:
            told["timed_out"] = True
        elif task.killed_by_command or self._run.state != RUNNING:
            told["cut_short"] = True
        if task.out_of_memory:
            told["out_of_memory"] = True
        return told

    def tell_again(self) -> None:
        """Send the service the counts once more: it may be another one."""
        self._service_knows, self._service_next = {}, 0.0

    def _tell_service(self, now: float) -> None:
        """Send the service how far the commands are, seldom, for `queue` and `ps`."""
        if now < self._service_next:
            return
        counts = self._counts()
        self._service_waits = counts != self._service_knows
        if self._service_waits:
            self._service_knows, self._service_next = counts, now + _SERVICE_EVERY
            self._run.links.tell_daemon({"event": "commands", "counts": counts})

    def _counts(self) -> "Mapping[str, int]":
        """Return how many commands are `done`, and how many of them failed; with `total` if the client knows it."""
        others, (ended, failed) = self._others, self.tally.ends()
        done = max(0, others.get("done", 0) + ended)
        found = {"done": done, "failed": max(0, others.get("failed", 0) + failed)}
        if not self.closed and "left" not in others:
            return found
        left = 0 if self.closed else others["left"]
        return {**found, "total": done + len(self.running) + len(self.window.waiting) + left}

    def tell(self) -> None:
        """Send the starts and ends since the last event to the client.

        The event is delayed if the client got one just now and has sent enough commands ahead: waking the client for
        each command costs a tenth of the command.
        """
        now = time.monotonic()
        self._tell_service(now)
        if self._withdrew is None and now < self._told_at + _PAUSE and self.window.is_full_enough():
            return
        event: dict[str, object] = {"event": "tasks"}
        if self._begun:
            event["begun"], self._begun = self._begun, []
        if self._ended:
            event["ended"], self._ended = self._ended, []
        if self._withdrew is not None:
            event["withdrawn"], self._withdrew = self._withdrew, None
        if len(event) > 1:
            self._told_at = now
            self._run.links.tell_launcher(event)

    # Deadlines.

    def _now(self) -> float:
        """Return the time of the step's own clock, which stands still while the step is suspended."""
        return time.monotonic() - self._run.suspended_seconds

    def patience(self) -> float | None:
        """Return the seconds until something is due in the step; None for never."""
        other = self._reaper.patience()
        due = [] if other is None else [other]
        if self._ended or self._begun:
            due.append(self._told_at + _PAUSE - time.monotonic())
        if self._service_waits:
            due.append(self._service_next - time.monotonic())
        if self._left:
            self._look = min(2 * self._look, _LAST_LOOK)
            due.append(self._look)
        if not self._reaper.termination.suspension.suspended:
            due += [task.deadline - self._now() for task in self.running.values() if task.deadline is not None]
        return max(0.0, min(due)) if due else None

    def act(self) -> None:
        """Empty slots, and end tasks past the time limit."""
        if self._left:
            self._empty_slots()
        if self._reaper.termination.suspension.suspended:
            return
        now = self._now()
        for task in list(self.running.values()):
            if task.deadline is not None and task.deadline <= now:
                self._end_late(task, now)

    def _empty_slots(self) -> None:
        limit = self._run.step.unkillable_timeout
        for slot, (group, since, whose) in list(self._left.items()):
            if group is None or group.remove():
                del self._left[slot]
                self.free.append(slot)
            elif time.monotonic() - since > limit:
                del self._left[slot]
                self._reaper.termination.end(FAILED, f"what {whose} left behind does not die")
            else:
                group.kill_all()

    def _end_late(self, task: BulkTask, now: float) -> None:
        """Send TERM to a late task, and KILL after kill_wait. End the step if the task still lives after KILL."""
        step = self._run.step
        if task.kills > 1:
            self._reaper.termination.end(FAILED, f"process {task.pid} of command {task.command.seq} does not die")
            task.deadline = None
            return
        number, patience = (signals.KILL, step.unkillable_timeout) if task.kills else (signals.TERM, step.kill_wait)
        task.kills += 1
        task.killed_by_command = True
        task.deadline = now + patience
        if task.group is None:
            if not signals.send_group_of_child(task.pid, number):
                signals.send_child(task.pid, number)
        elif number == signals.KILL:
            task.group.kill_all()
        else:
            signals.send_each(task.group.pids, number, task.group.holds)

    def give_up(self) -> None:
        """Stop waiting for processes not ended by SIGKILL. The client gets no end for these commands."""
        for slot, task in self.running.items():
            self._run.tasks[slot] = self.sums[slot]
            self._run.failures.pop(task.number, None)
            self.sums[slot].pid = task.pid
        self.running.clear()

    def reason(self) -> str:
        """Return the reason why the step has failed, "" if all commands went well."""
        return self.tally.reason()

    def figures(self) -> "dict[str, object]":
        """Return the counts of the commands, for the record and for clients."""
        return {**self.tally.figures(), "running": len(self.running), "waiting": len(self.window.waiting)}


def _add(total: "Task", task: BulkTask) -> "Task":
    """Add the usage of a task to the slot's sum. The status becomes the worst: a signal, else the highest code."""
    total.pid, total.ended = max(task.pid, total.pid), task.ended
    user, system, peak = total.usage
    total.usage = (user + task.usage[0], system + task.usage[1], max(peak, task.usage[2]))
    total.transferred = (total.transferred[0] + task.transferred[0], total.transferred[1] + task.transferred[1])
    if task.peak is not None:
        total.used["peak_memory"] = max(task.peak, int(str(total.used.get("peak_memory", 0))))
    total.status = max(total.status or 0, task.status or 0, key=_badness)
    total.out_of_memory |= task.out_of_memory
    return total


def _badness(status: int) -> tuple[bool, int]:
    return os.WIFSIGNALED(status), status
