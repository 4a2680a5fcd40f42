"""The state of the running step, shared by the modules of the stepd. Runs in the stepd, as root."""

import _socket
import os
import time

from nodectl import messages
from nodectl.kernel import pseudo_file
from nodectl.kernel.identity import BEGAN_AS, effective_user
from nodectl.kernel.processes import cgroup_of
from nodectl.launch.cgroup import tree
from nodectl.launch.stepd import accounting
from nodectl.launch.stepd.end_reasons import EndReasons
from nodectl.launch.streams.relay import Relays
from nodectl.launch.task.step_context import StepContext
from nodectl.model import launch_order
from nodectl.model.states import FAILED, RUNNING
from nodectl.model.step import Step, Task
from nodectl.model.step_number import BATCH, EXTERN
from nodectl.plugin_host.caller import OK, PluginCaller
from nodectl.plugin_host.tracing.progress import Progress
from nodectl.plugin_host.tracing.recorder import Recorder
from nodectl.spank import S_CTX_REMOTE
from nodectl.spank.handle import Spank
from nodectl.spank.stack import Stack

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Protocol

    from nodectl.launch.stepd.connections import Links
    from nodectl.launch.stepd.plugin_output import PluginOutput
    from nodectl.launch.task.child import Child
    from nodectl.model.launch_order import Hook
    from nodectl.plugin_host.caller import Outcome
    from nodectl.plugin_host.node_plugins import NodePlugins

    class Commands(Protocol):
        """The commands of a bulk step: `nodectl/bulk/runner/work.py`."""

        closed: bool

        def take(self, value: Sequence[object], others: Mapping[str, int] | None = None) -> None:
            """Add commands from the client. `others` counts the commands that are not here. Raises ValueError."""

        def tell_again(self) -> None:
            """Send the counts to the service again, perhaps to a new daemon."""

        def withdraw(self) -> None:
            """Drop all commands not yet started."""

        def goes_on(self) -> bool:
            """Return True while commands run, wait or may still come."""

        def task_ended(self, task: Task) -> None:
            """Read the cgroup's figures after the process of a command has ended."""

        def ended(self, task: Task, *, left_none: bool = False) -> None:
            """Count a command and empty the slot, after the command's last hook. `left_none`: the slot is empty."""

        def killed(self) -> None:
            """Replace the slots' cgroups, after SIGKILL to all processes of the step."""

        def give_up(self) -> None:
            """Stop waiting for running commands: SIGKILL does not end the processes."""

        def figures(self) -> dict[str, object]:
            """Return the counts of the commands."""

        def reason(self) -> str:
            """Return the reason why the step has failed, "" if no command has failed."""

    class Messages(Protocol):
        """Lines for the file of a batch job's script: `stepd/script_messages.py`."""

        def add(self, line: str) -> None:
            """Keep a line."""

        def write(self) -> None:
            """Write the kept lines, once the script has begun."""

        def finish(self, wait: Callable[[int, float], object]) -> None:
            """Write the remaining lines, when the step is over."""


STEPD_SLOT = 0
LINK = 3  # the place of the connection to the daemon among the descriptors of an order
_OOM_ADJUSTMENT = b"-999"
_LIMITED = {
    "memory.max": "memory", "cpu.max": "CPU time", "cpu.weight": "CPU time", "io.max": "use of disks",
    "io.weight": "use of disks", "pids.max": "processes",
}  # fmt: skip


class LaunchFailed(Exception):
    """The failure of a step; str() describes the failure. `stepd.main` catches this exception, in a single place."""


class NoMpi:
    """The stages of a step at which the server of its MPI plugin acts: `stepd/mpi.py`. Without MPI, nothing is done.

    `words`: the descriptor for reading the server's words, -1 for none.
    """

    words = -1

    def introduce(self, child: "Child") -> None:
        """Give the server's socket and variables to a task before the start. Raises LaunchFailed."""

    def tasks_have_begun(self) -> None:
        """Close the tasks' sockets in the stepd, once all tasks have started or will not start."""

    def read(self) -> None:
        """Read and handle the server's words."""

    def judge(self) -> None:
        """End the step if a word of the server requires an end. Called after each collection of children."""

    def task_ended(self, task: Task) -> None:
        """End the step if the task failed within MPI."""

    def ended(self, pid: int, status: int) -> None:
        """Handle the end of a child that is no task, perhaps of the server."""

    def finish(self) -> None:
        """End the server, because the step is over."""

    def remove_group(self) -> None:
        """Remove the server's cgroup, after the step's processes have ended."""


_NO_MPI = NoMpi()


class NoPreload:
    """The stages of a step at which its warm interpreter acts: `stepd/preload.py`. Without it, nothing is done."""

    __slots__ = ()

    def introduce(self, task: Task) -> None:
        """Have a task hand itself over to the interpreter, before the task's start. Raises OSError."""

    def begun(self, task: Task) -> None:
        """Close the task's own end, once it has started or will not start."""

    def reads(self, fd: int) -> bool:
        """Read and handle the interpreter's words. Returns False if `fd` is not their descriptor."""
        return False

    def task_ended(self, task: Task) -> None:
        """Forget a task that has ended, or could not be started."""

    def ended(self, pid: int, status: int) -> None:
        """Handle the end of a child that is no task, perhaps of the interpreter."""

    def finish(self) -> None:
        """End the interpreter, because the step is over."""

    def remove_group(self) -> None:
        """Remove the interpreter's cgroup, after the step's processes have ended."""


_NO_PRELOAD = NoPreload()


class Descriptors:
    """The descriptors of a step, all made and handed over by the daemon.

    `client` is the uid of the client that waits for the step. It is None where no client waits: then `streams`,
    `orders` and `news` are -1.

    `streams` is a socket in which the client's standard streams wait, or will wait. Tasks and relays take copies.
    The stepd itself neither receives nor closes the streams: the process that made them could make that take any
    time.

    `of_user` are further sockets in which descriptors of the user's may lie when the stepd ends.

    `lifeline` is a pidfd of the process that asked for the step, where the step must not outlive this process; else -1.

    `views` is the listening socket for viewers of the step's streams, where a process copies them; else -1.
    """

    __slots__ = (
        "client", "lifeline", "link", "listener", "news", "of_user", "orders", "progress", "streams", "trace", "views",
    )  # fmt: skip

    def __init__(self, fds: "Sequence[int]", client: "int | None", lifeline: int = -1, views: int = -1) -> None:
        self.trace, self.progress, self.listener, link, *rest = fds
        self.link = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, link)
        self.client = client
        self.lifeline = lifeline
        self.views = views
        self.streams, self.orders, self.news = rest or (-1, -1, -1)
        self.of_user: list[int] = []


class Run(StepContext):
    """A running step: the state shared by the tasks, and the state of the stepd alone.

    State words are Slurm's: RUNNING, then COMPLETED, FAILED, CANCELLED, TIMEOUT, OUT_OF_MEMORY.
    """

    __slots__ = (
        "aside",
        "bulk",
        "caller",
        "children",
        "clock",
        "end_reasons",
        "failures",
        "fatal",
        "fds",
        "gate_is_open",
        "gate_writer",
        "kept",
        "links",
        "may_be_changed",
        "may_be_spared",
        "may_fork_into_cgroup",
        "may_share_memory",
        "mpi",
        "on_begun",
        "orphans",
        "plugin_output",
        "preload",
        "private",
        "reason",
        "recorder",
        "relays",
        "script",
        "seen_at",
        "spoiled",
        "state",
        "suspended_seconds",
        "uncounted_seconds",
        "unkillable",
    )  # fmt: skip

    links: "Links"
    seen_at: str  # the path of the socket `fds.views`

    def __init__(
        self, step: Step, fds: Descriptors, node: "NodePlugins", cgroup_mount: str, *, kept: bool = False
    ) -> None:
        self.step = step
        self.kept = kept  # for further steps: this process is not in the step's cgroup
        self.fds = fds
        self.trace = fds.trace
        self.client_streams = fds.streams
        self.node = node
        self.progress = Progress(fds.progress, step.ntasks)
        os.close(fds.progress)
        self.recorder = Recorder(fds.trace, "stepd")
        self.may_be_changed = bool(step.stack) or not node.are_ours  # this process, by plugins that are not nodectl's
        self.caller = PluginCaller(
            self.recorder, self.progress, STEPD_SLOT, step.hook_timeout, single_threaded=self.may_be_changed
        )
        only = launch_order.EXTERN_HOOKS if step.step_id == EXTERN else None
        self.spank = Stack(self.caller, Spank(S_CTX_REMOTE, step), only)
        self.group = tree.Group(cgroup_mount + step.cgroup) if step.cgroup else None
        numbered = enumerate(zip(step.cpu_masks, step.numbers, strict=True))
        self.tasks = [Task(place, mask, number) for place, (mask, number) in numbered]
        self.spank.handle.tasks = self.tasks
        self.aside: tree.Group | None = None  # where the stepd is to end, where that is not in the step's cgroup
        self.children: list[Child] = []  # the tasks' launch data
        self.gate_writer = -1
        self.gate_is_open = self.may_be_spared = False
        self.may_share_memory = self.may_fork_into_cgroup = True  # until the kernel refuses it
        self.private: list[int] = []  # descriptors of the stepd that no task needs
        self.on_begun: Callable[[], None] | None = None  # called when the gate is open
        self.relays = Relays()
        self.mpi, self.preload = _NO_MPI, _NO_PRELOAD
        self.orphans = accounting.Orphans()
        self.fatal = ""  # why the step has to end: what a required plugin did in a task
        self.failures: dict[int, str] = {}  # why a task never became its program
        around = cgroup_mount + cgroup_of() if cgroup_mount and self.group is None else ""
        self.end_reasons = EndReasons(step, self.tasks, self.group, self.say, around)
        # An admin's suspensions are uncounted, too: neither for the time limit nor as use.
        self.suspended_seconds = self.uncounted_seconds = 0.0
        self.unkillable = ""
        self.clock = accounting.StepClock()
        self.state = RUNNING
        self.reason = ""
        self.plugin_output: PluginOutput | None = None  # only where there are SPANK plugins
        self.script: Messages | None = None  # only of a batch job's script
        self.bulk: Commands | None = None  # of a bulk step, when commands can come
        self.spoiled = ""  # why a step has failed although its tasks ended well

    def plugin_being_called(self) -> str:
        """Return the name of the SPANK plugin being called, with the step's number; "" while no plugin is called."""
        stacked = self.spank.handle.plugin
        return "" if stacked is None else f"plugin {stacked.plugin.name}: step {self.step}"

    def call_name(self, hook: "Hook", place: int) -> str:
        """Return the name of the call shown by the progress, with the name of the call's plugin."""
        plugin = self.node.name(hook.kind, place) if hook.kind != "spank" else self.spank.name(place)
        return f"{hook.call} of plugin {plugin}" if plugin else hook.call

    def pass_on_plugin_output(self) -> None:
        """Send the lines written to stderr by hooks to the user and to the log."""
        for line in self.plugin_output.take() if self.plugin_output is not None else ():
            self.links.broadcast_line(line)
            messages.to_log(f"nodectl stepd: step {self.step}: {messages.printable(line)}", "plugin-output")

    def call(self, row: "Hook", *arguments: object, task: "Task | None" = None) -> "Outcome":
        """Call a row of the launch in the plugins, with the row's identity. The row gives the cost of a failure.

        Raises LaunchFailed where the step ends. The caller judges a failure that counts for a task, and any other
        failure is logged.
        """
        if row.kind == "spank" and not self.spank.has(row):
            return OK
        outcome = self._call_as(row, arguments, task)
        if outcome is OK:
            return outcome
        if row.costs == launch_order.STEP_ENDS:
            self.require(outcome)
        elif row.costs != launch_order.TASK_COUNTS:
            self.log(outcome)
        return outcome

    def _call_as(self, row: "Hook", arguments: "Sequence[object]", task: "Task | None") -> "Outcome":
        """Call the row's plugins, as the step's user where the row says so and a plugin has the function."""
        if row.identity == launch_order.EFFECTIVE_USER:
            if row.kind != "spank" and not self.node.has(row):
                return OK
            with effective_user(self.step.identity):
                return self._call_plugins(row, arguments, task)
        return self._call_plugins(row, arguments, task)

    def _call_plugins(self, row: "Hook", arguments: "Sequence[object]", task: "Task | None") -> "Outcome":
        if row.kind == "spank":
            return self.spank.call(row, task)
        return self.node.call(self.caller, row, arguments, None if task is None else task.number)

    def require(self, outcome: "Outcome") -> None:
        """Raise LaunchFailed if the call failed."""
        if not outcome:
            raise self.failed(outcome.why)

    def failed(self, why: str) -> LaunchFailed:
        """Set the state FAILED, tell the user why, and return the exception to raise.

        The user is told at once, before the tasks end that wait at the gate.
        """
        self.say(why)
        self.end_as(FAILED, why)
        return LaunchFailed(why)

    def unforeseen(self, error: Exception) -> str:
        """Describe an unforeseen error in a line: the hook being called, the error with errno and object.

        The place where the error was raised goes into the log.
        """
        trail, frames = error.__traceback__, []
        while trail is not None:
            code = trail.tb_frame.f_code
            frames.append(f"{os.path.basename(code.co_filename)}:{trail.tb_lineno} {code.co_name}")
            trail = trail.tb_next
        hook, place = self.progress.place(STEPD_SLOT)
        doing = f"in {self.call_name(hook, place)}: " if hook is not None else ""
        why = f"{doing}unforeseen error of the step runner: {type(error).__name__}: {error}"
        messages.to_log(f"nodectl stepd: step {self.step}: {why} ({' > '.join(frames)})")
        return f"{why} ({frames[-1]})" if frames else why

    def log(self, outcome: "Outcome") -> None:
        """Log the failure of a call, where a failure has no further effect."""
        if not outcome:
            messages.error(f"step {self.step}: {outcome.why}")

    def end_as(self, state: str, reason: str) -> None:
        """Set state and reason, once: any later reason follows from the first."""
        if self.state == RUNNING:
            self.state, self.reason = state, reason

    def enter(self, row: "Hook") -> int:
        """Note in the progress the begin of a row of nodectl's own. Returns the time, for `leave`."""
        self.progress.enter(STEPD_SLOT, row)
        return self.recorder.begin(row)

    def leave(self, row: "Hook", started: int, *, task: "int | None" = None, rc: int = 0, note: str = "") -> None:
        """Write a finished row to the trace."""
        self.recorder.write(row, started, task=task, rc=rc, note=note)

    def waits_for(self, row: "Hook") -> None:
        """Note in the progress the row, of tasks or task scripts, for which the stepd waits."""
        self.progress.enter(STEPD_SLOT, row)

    def say(self, text: str) -> None:
        """Report an error of this step to the step's user."""
        messages.error(f"step {self.step}: {text}")

    def tell_unlimited(self) -> None:
        """Warn the step's user of limits that this machine does not keep, once in a job.

        Not in the step that only holds an allocation, which no user hears; nor in the job of another manager, which
        limits its jobs itself.
        """
        step = self.step
        if step.within or not (step.is_first or (step.first_step, step.step_id) == (EXTERN, 0)):
            return
        wanted = ["memory.max"] if step.memory else []
        wanted += [share.partition(" ")[0] for share in step.shares]
        if words := dict.fromkeys(_LIMITED.get(name, name) for name in wanted if name not in step.limits):
            doctor = "nodectl doctor" if BEGAN_AS == 0 else "nodectl --user doctor"
            messages.warning(f"this machine does not limit {', '.join(words)} of jobs; `{doctor}` says why")

    def spoil(self, why: str) -> None:
        """Mark the step as failed for this reason, even if all tasks end well."""
        self.say(why)
        self.spoiled = self.spoiled or why

    def announce_cancel(self, why: str) -> None:
        """Report the cancellation in the line known from batch systems.

        `why` is "DUE TO TIME LIMIT" and the like, or "" for none.
        """
        at = time.strftime("%Y-%m-%dT%H:%M:%S")
        what = f"JOB {self.step.job_id}" if self.step.step_id == BATCH else f"STEP {self.step}"
        messages.error(f"*** {what} ON {self.step.node_name} CANCELLED AT {at} {why}".rstrip() + " ***")

    def kill(self) -> None:
        """Send SIGKILL to every process of the step found by the process tracker."""
        if self.step.container_id:
            self.call(launch_order.PROCTRACK_SIGNAL, self.step.container_id, 9)
        if self.bulk is not None:
            self.bulk.killed()

    def enter_container(self) -> bool:
        """Join the job's container, in a new helper process. Logs a failure and returns False."""
        plugin, call = self.node.container, launch_order.CONTAINER_ADD_PID.call
        function = plugin.hooks.get(call)
        if function is None:
            return True
        outcome = self.caller.silent(function, (self.step.job_id, os.getpid(), self.step.uid))
        if not outcome:
            messages.error(f"step {self.step}: plugin {plugin.title}: {call}: {outcome.why}")
        return bool(outcome)

    def descriptors(self) -> list[int]:
        """Return the stepd's descriptors, none of which a task may keep.

        If a task kept a copy of the gate's writing end, the remaining tasks would not notice the stepd's death.
        """
        fds = [*self.private, *self.caller.descriptors(), *self.links.descriptors(), self.gate_writer]
        return [fd for fd in fds if fd >= 0]

    def close_gate(self) -> None:
        """Close the gate. Each task still waiting there reads the end of the pipe and exits 1."""
        os.close(self.gate_writer)
        self.gate_writer = -1

    def all_have_begun(self) -> None:
        """Close the gate and protect the stepd from the out-of-memory killer.

        Called when every task runs its program or has ended. Not earlier, because the kernel protects all processes
        that share memory alike, and programs inherit the protection.
        """
        self.close_gate()
        self.children.clear()  # no longer needed
        if not self.may_be_spared:
            return
        try:
            pseudo_file.write("/proc/self/oom_score_adj", _OOM_ADJUSTMENT)
        except OSError:
            pass  # a plugin has given the stepd another root, without a /proc

    def status(self) -> "dict[str, object]":
        """Return the status of the step, as shown to clients."""
        return {
            "job": self.step.job_id,
            "step": self.step.step_id,
            "uid": self.step.uid,
            "state": self.state,
            "pid": os.getpid(),
            "container_id": str(self.step.container_id),
            **({"bulk": self.bulk.figures()} if self.bulk is not None else {}),
            "tasks": [task.shown() for task in self.tasks],
        }

    def spawn(self) -> int:
        """Fork a child in the step's cgroup, wherever the stepd is. The stepd must have a single thread."""
        assert self.caller.one_thread(), "fork with threads"  # noqa: S101  # the caller has checked
        if self.group is None or not (self.kept or self.step.within):
            return os.fork()
        group = self.helpers_group()
        if self.kept:
            return group.fork()
        pid = os.fork()  # where a plugin has had threads only libc's fork will do
        if pid == 0:
            _enter_or_end(group)
        return pid

    def helpers_group(self) -> tree.Group:
        """Return the cgroup of the step's stepd and of children except tasks. Raises OSError.

        The cgroup is made here where the stepd is elsewhere, because the stepd serves several steps or stands beside
        another manager's cgroups.
        """
        assert self.group is not None  # noqa: S101  # callers check for a cgroup first
        return self.group.child("stepd").make()


def _enter_or_end(group: tree.Group) -> None:
    """Enter the cgroup in a new child; exit the child if this fails."""
    try:
        group.add(0)
    except OSError as error:
        messages.to_log(f"nodectl stepd: enter {group.full_path}: {error.strerror}")
        os._exit(1)
