"""The event loop of a stepd: ends of children, connections, and deadlines (`termination.py`).

One poll(2) over the connections, the tasks' report pipe and the SIGCHLD pipe. Runs in the stepd, as root, from the
opened gate to the last task's end.
"""

import _signal
import os
import select
import time

from nodectl import messages
from nodectl.kernel import children
from nodectl.launch.stepd import accounting
from nodectl.launch.stepd.task_epilogs import TaskEpilogs
from nodectl.launch.stepd.termination import Termination
from nodectl.launch.task import environment
from nodectl.launch.task.reports import Reports
from nodectl.model import launch_order
from nodectl.model.states import FAILED, OUT_OF_MEMORY, RUNNING

TYPE_CHECKING = False
if TYPE_CHECKING:
    import resource

    from nodectl.launch.stepd.run import Run
    from nodectl.model.step import Task
    from nodectl.plugin_host.caller import Outcome

# The wait status of a task that found the gate closed. The reason is reported where the launch failed.
_NOT_LET_IN = 1 << 8
_BLIND = 0.1  # seconds until poll(2) is tried again
_PAUSE = 0.01  # seconds between two events that tell of tasks' ends


class Reaper:
    """The event loop of the stepd.

    `gone` are the pids of children that have ended and were no tasks. Tasks write their reports to the descriptor
    `report`.
    """

    __slots__ = (
        "_children",
        "_ended",
        "_epilogs",
        "_inbox",
        "_is_blind",
        "_poll",
        "_run",
        "_told_at",
        "_waker",
        "_wakeup",
        "gone",
        "report",
        "termination",
    )

    def __init__(self, run: "Run", poll: "select.poll") -> None:
        self._run = run
        self._poll = poll
        self._epilogs = TaskEpilogs(run, poll, self._is_over)
        self.termination = Termination(run, self.collect, self._give_up, self._epilogs.kill)
        reader, self.report = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        os.set_blocking(self.report, True)  # a task may wait for us to read; we never wait for a task
        self._inbox = Reports(reader)
        self._wakeup, self._waker = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        run.private += [reader, self._wakeup, self._waker]
        self._listen()
        poll.register(self._wakeup, select.POLLIN)
        poll.register(reader, select.POLLIN)
        if run.fds.lifeline >= 0:
            poll.register(run.fds.lifeline, select.POLLIN)
        self._children: dict[int, Task] = {}
        self._ended: list[Task] = []  # tasks whose end the clients do not know yet
        self._told_at = 0.0
        self._is_blind = False
        self.gone: set[int] = set()  # children that are no tasks and have been collected

    def _listen(self) -> None:
        """Install the handlers of SIGCHLD, SIGPIPE and SIGTERM. A plugin may change all of this later."""
        _signal.signal(_signal.SIGCHLD, _wake_up)
        _signal.signal(_signal.SIGPIPE, _signal.SIG_IGN)  # a client may close its end
        _signal.signal(_signal.SIGTERM, self.termination.told_to_stop)
        _signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        _signal.pthread_sigmask(_signal.SIG_UNBLOCK, (_signal.SIGCHLD, _signal.SIGTERM))

    def expect(self, task: "Task") -> None:
        """Add a task to the tasks awaited by `wait`."""
        self._children[task.pid] = task

    def knows(self, pid: int) -> bool:
        """Return True for the pid of an awaited task."""
        return pid in self._children

    def replace(self, task: "Task", pid: int) -> None:
        """Await another child as this task, instead of the task's earlier process."""
        del self._children[task.pid]
        task.pid = pid
        self._children[pid] = task

    def wait(self) -> None:
        """Run the loop until every task has ended and the last row of each is done."""
        while self._children or self._epilogs.any():
            self._run.waits_for(launch_order.TASK_EPILOG if self._epilogs.any() else launch_order.EXEC)
            self.turn(self.patience())

    def patience(self) -> float | None:
        """The seconds until something is due; None for never."""
        times = [self.termination.patience(), self._epilogs.patience()]
        if self._epilogs.any() and self.termination.late is not None:
            left = self.termination.late[1] - time.monotonic()
            times.append(left if left > 0 else None)  # else they have been killed
        return min((seconds for seconds in times if seconds is not None), default=None)

    def wait_for(self, fd: int) -> None:
        """Run a turn of the loop, which ends early when `fd` is readable."""
        self._poll.register(fd, select.POLLIN)
        try:
            self.turn(self.patience())
        finally:
            self._poll.unregister(fd)

    def watch(self, fd: int) -> None:
        """Watch the pipe of a process of the user's: from now on a turn ends when the pipe is readable."""
        self._poll.register(fd, select.POLLIN)

    def unwatch(self, fd: int) -> None:
        """Stop watching the pipe."""
        self._poll.unregister(fd)

    def watch_gate(self) -> None:
        """Watch the open gate: when no task holds the reading end any more, all tasks have begun."""
        self._poll.register(self._run.gate_writer, 0)  # poll(2) reports errors all the same

    def turn(self, patience: float | None) -> None:
        """Run a round of the loop: sleep at most `patience` seconds, then serve all events."""
        if self._run.may_be_changed:
            self._listen()  # first: what follows writes to pipes whose reader may have gone
        self._run.pass_on_plugin_output()
        if self._run.script is not None:
            self._run.script.write()
        if self._ended and (patience is None or patience > _PAUSE):
            patience = _PAUSE
        if self._run.may_be_changed:
            ended = children.next_to_collect()
            if ended or (ended == children.NO_CHILD and (self._children or self._epilogs.any())):
                patience = 0  # a child ended before the handler was installed
        for fd, mask in self._ready(patience):
            if fd == self._wakeup:
                os.read(self._wakeup, 4096)
            elif fd == self._inbox.fd:
                self._read_reports()
            elif fd == self._run.fds.lifeline:
                self._poll.unregister(fd)
                self.termination.owner_gone()
            elif fd == self._run.gate_writer:
                self._poll.unregister(fd)
                self._run.all_have_begun()
            elif fd == self._run.mpi.words:
                self._run.mpi.read()
            elif not (self._epilogs.reads(fd) or self._run.preload.reads(fd)):
                self._run.links.handle(fd, mask)
        self.collect()
        self._run.mpi.judge()
        self._end_if_fatal()
        self.termination.act()
        self._act_on_epilogs()

    def _ready(self, patience: float | None) -> "list[tuple[int, int]]":
        """Return the events of poll(2), or an empty list after a pause where the kernel refuses the call.

        poll(2) may fail for lack of memory. The loop serves ends of tasks and deadlines without it: the step goes on.
        """
        try:
            return self._poll.poll(None if patience is None else patience * 1000)
        except OSError as error:
            if not self._is_blind:
                self._is_blind = True
                messages.to_log(f"nodectl stepd: step {self._run.step}: poll: {error.strerror}; trying again")
            time.sleep(_BLIND if patience is None else min(patience, _BLIND))
            return []

    def _act_on_epilogs(self) -> None:
        """Act on the deadlines of the tasks' epilogs.

        A step that is told to end while only epilogs run ends like a step whose output is not read.
        """
        if not self._epilogs.any():
            return
        late = self.termination.late
        if late is not None and time.monotonic() >= late[1]:
            self.termination.end_epilogs()
        self._epilogs.act()

    def collect(self) -> None:
        """Collect every child that has ended: tasks, relays, and orphans adopted by the stepd."""
        ended: list[Task] = []
        scripts: list[tuple[int, int]] = []  # epilogs: pid and status
        while pid := children.next_to_collect():
            task = self._children.pop(pid, None)
            if task is not None:
                self.termination.has_begun(task)  # no later: its process must still be there
            transfer = accounting.transferred(pid)
            is_script = self._epilogs.ends(pid)
            _, status, usage = os.wait4(pid, 0)
            if is_script:
                self._run.step.helpers.discard(pid)
                scripts.append((pid, status))
            elif task is None:
                self._no_task_ended(pid, status, usage, transfer)
            else:
                task.status = status
                task.ended = self._run.clock.now()
                task.usage = (usage.ru_utime, usage.ru_stime, usage.ru_maxrss)
                task.transferred = transfer
                ended.append(task)
        if pid == children.NO_CHILD:
            ended += self._lost()
            scripts += self._epilogs.lost(scripts)
        if ended:
            self._read_reports()  # reports sent before the ends
        for task in ended:
            self._end_of(task)
        for pid, status in scripts:
            self._epilogs.ended(pid, status)
        if self._run.bulk is None:
            self._tell_exits()

    def watched(self) -> "list[int]":
        """Return the descriptors for which `turn` has work when readable."""
        lifeline = self._run.fds.lifeline
        return [self._wakeup, self._inbox.fd, *([lifeline] if lifeline >= 0 else ()), *self._run.links.readers()]

    def collected(self, task: "Task", *, is_plain: bool) -> None:
        """Handle the end of a command collected in C. `is_plain`: there is nothing to explain or to clean up."""
        del self._children[task.pid]
        if is_plain and self._run.bulk is not None:
            self._run.bulk.ended(task, left_none=self._run.group is not None)
        else:
            self._read_reports()
            self._end_of(task)

    def _no_task_ended(self, pid: int, status: int, usage: "resource.struct_rusage", transfer: tuple[int, int]) -> None:
        """A relay, another helper or an orphan was collected."""
        if pid in self._run.step.helpers:
            self.gone.add(pid)
        else:
            self._run.orphans.add(usage, transfer)  # a step may have any number of orphans
        self._run.step.helpers.discard(pid)  # another process may get its pid
        self._run.mpi.ended(pid, status)
        self._run.preload.ended(pid, status)
        if why := self._run.relays.ended(pid, status):
            self._run.spoil(why)
            self.termination.end(FAILED, why)

    def _lost(self) -> "list[Task]":
        """Return the tasks without a known exit status, marked as failed.

        A plugin has collected the status, or has had the statuses of children thrown away.
        """
        tasks = list(self._children.values())
        self._children.clear()
        self.gone |= self._run.step.helpers
        for task in tasks:
            task.ended = self._run.clock.now()
            task.status = 0
            self._explain(task, "a plugin in the step runner has taken its exit status")
        return tasks

    def _end_of(self, task: "Task") -> None:
        """Explain and record the end of a task, and start the task's epilogs."""
        run = self._run
        run.preload.task_ended(task)
        hook, place = run.progress.place(task.local_id + 1)
        kept_waiting = hook is launch_order.GATE and task.status == _NOT_LET_IN
        if hook is not None and not kept_waiting and task.number not in run.failures and not task.killed_by_command:
            why = f"it ended inside {run.call_name(hook, place)}"
            self._explain(task, why)
            if hook.kind == "spank" and run.spank.requires(place):
                self._is_fatal(task.number, why)
        (run.bulk or run.end_reasons).task_ended(task)
        if not self._epilogs.begin(task):
            self._is_over(task)

    def _is_over(self, task: "Task") -> None:
        """Call the hooks of a task's end, when the task's epilogs have ended."""
        run = self._run
        known, rank = run.step.environment, environment.of_rank(task)
        own = {name: known[name] for name in rank if name in known}
        known.update(rank)  # for the step's last hook, too: the task that ended last
        self._judge(task, run.call(launch_order.SPANK_TASK_EXIT, task=task))
        outcome = run.call(launch_order.TASK_POST_TERM, run.step, task, task=task)
        self._judge(task, outcome, outcome.errno & 0xFF or 1)
        if run.bulk is not None:
            for name in rank:  # other hooks are not of a command that has ended
                known.pop(name, None)
            known.update(own)
            run.bulk.ended(task)
            return
        self._ended.append(task)
        run.mpi.task_ended(task)
        if not run.step.kill_on_bad_exit or run.state != RUNNING:
            return
        if task.out_of_memory:
            self.termination.end(OUT_OF_MEMORY, run.end_reasons.reason)
        elif task.status:
            self.termination.end(
                FAILED, f"task {task.number} {children.said(task.status)} and --kill-on-bad-exit was given"
            )

    def _judge(self, task: "Task", outcome: "Outcome", code: int = 1) -> None:
        """Report a plugin's failure at the end of a task, and mark a task as failed if the task ended well."""
        if outcome:
            return
        if task.status:
            self._say(task.number, outcome.why)
        else:
            self._fail(task.number, outcome.why)
            task.status = code << 8

    def _explain(self, task: "Task", why: str) -> None:
        """Tell the user why a task never became the program, and mark the task as failed for any exit status."""
        self._fail(task.number, why)
        if task.status == 0:
            task.status = 1 << 8

    def _fail(self, number: int, why: str) -> None:
        self._say(number, why)
        self._run.failures.setdefault(number, why)

    def _say(self, number: int, why: str) -> None:
        """Report a task's error to the user. In a bulk step the client gets the error with the command's end."""
        if self._run.bulk is None:
            self._run.say(f"task {number}: {why}")

    def _tell_exits(self) -> None:
        """Send the ends of tasks to the clients, several in an event.

        The event is delayed if clients got one just now and more tasks are to end: waking a client for each task takes
        a tenth of the task's own time.
        """
        now = time.monotonic()
        if not self._ended or ((self._children or self._epilogs.any()) and now < self._told_at + _PAUSE):
            return
        self._told_at = now
        ended, self._ended = self._ended, []
        alike: dict[tuple[int, bool], list[int]] = {}
        for task in ended:
            alike.setdefault((task.status or 0, task.out_of_memory), []).append(task.number)
        for (status, oom), tasks in alike.items():
            self._run.links.broadcast({"event": "exit", "tasks": tasks, "status": status, "out_of_memory": oom})

    def _read_reports(self) -> None:
        for report in self._inbox.read():
            if "say" in report:
                self._run.links.broadcast_line(str(report["say"]))
            elif "log" in report:
                messages.plugin_to_log(str(report["log"]))
            elif "failed" in report:
                self._fail(int(str(report["task"])), str(report["failed"]))
            elif "fatal" in report:
                self._fail(int(str(report["task"])), str(report["fatal"]))
                self._is_fatal(int(str(report["task"])), str(report["fatal"]))

    def _is_fatal(self, number: int, why: str) -> None:
        """End the step, because a required plugin has failed in a task. In a bulk step only the command ends."""
        run = self._run
        if run.bulk is None and not run.fatal:
            run.fatal = f"task {number}: {why}"
            if not run.gate_is_open:
                run.end_as(FAILED, run.fatal)  # and it stays closed

    def _end_if_fatal(self) -> None:
        """End the step after a fatal failure, once each task has executed the program or has ended.

        Until then a task is in hooks, which are not interrupted.
        """
        run = self._run
        if not run.fatal or run.state != RUNNING or not run.gate_is_open:
            return
        if run.gate_writer >= 0 and self._children:  # else all have ended, before poll(2) told it
            return
        if run.step.nnodes > 1:  # on its other nodes, too
            run.links.tell_launcher({"event": "fatal", "state": FAILED, "reason": run.fatal})
        self.termination.end(FAILED, run.fatal)

    def _give_up(self) -> None:
        """Stop waiting for processes not ended by SIGKILL, because of a hang in the kernel."""
        for task in self._children.values():
            self._explain(task, f"process {task.pid} does not die")
        self._children.clear()
        for task in self._epilogs.give_up():
            if self._run.bulk is None:
                self._is_over(task)
        self._tell_exits()
        if self._run.bulk is not None:
            self._run.bulk.give_up()


def _wake_up(*_: object) -> None:
    """Do nothing. Python writes to the wake-up pipe only if SIGCHLD has a handler."""
