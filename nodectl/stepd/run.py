"""The step that this stepd runs: the state that the stepd's modules share."""

import _socket
import os
import time

from nodectl import messages
from nodectl.cgroup import tree
from nodectl.kernel import pseudo_file
from nodectl.kernel.processes import cgroup_of
from nodectl.model.launch_order import EXTERN_HOOKS, ROWS
from nodectl.model.step import Step, Task
from nodectl.model.step_number import BATCH, EXTERN
from nodectl.plugin_host.caller import PluginCaller
from nodectl.spank import S_CTX_REMOTE
from nodectl.spank.handle import Spank
from nodectl.spank.stack import Stack
from nodectl.stepd import accounting
from nodectl.stepd.end_reasons import EndReasons
from nodectl.task.pump import Pumps
from nodectl.task.step_context import StepContext
from nodectl.tracing.progress import Progress
from nodectl.tracing.recorder import Recorder, now

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Protocol

    from nodectl.model.launch_order import Hook
    from nodectl.plugin_host.caller import Outcome
    from nodectl.plugin_host.node_plugins import NodePlugins
    from nodectl.stepd.connections import Links
    from nodectl.stepd.plugin_output import PluginOutput
    from nodectl.task.child import Child

    class Commands(Protocol):
        """The commands of a bulk step: `stepd/bulk/work.py`."""

        closed: bool

        def take(self, value: Sequence[object]) -> None:
            """More of them, from the client. Raises ValueError."""

        def withdraw(self) -> None:
            """Those that have not begun will not."""

        def goes_on(self) -> bool:
            """True while some run, wait or may come."""

        def task_ended(self, task: Task) -> None:
            """The process of one has ended."""

        def ended(self, task: Task) -> None:
            """Its last hook has been called."""

        def killed(self) -> None:
            """Whatever was in the step's cgroups was."""

        def give_up(self) -> None:
            """Those that run do not die."""

        def figures(self) -> dict[str, object]:
            """How they stand."""

        def reason(self) -> str:
            """Why the step has failed, "" where none did."""

    class Messages(Protocol):
        """Lines for the file of a batch job's script: `stepd/script_messages.py`."""

        def add(self, line: str) -> None:
            """One line, which is kept."""

        def write(self) -> None:
            """What was kept, once the script has begun."""

        def finish(self, wait: Callable[[int, float], object]) -> None:
            """The rest, when the step is over."""

    class Mpi(Protocol):
        """The server of the step's MPI plugin: `stepd/mpi.py`."""

        words: int

        def introduce(self, child: Child) -> None:
            """To a task that is to begin. Raises StepFailed."""

        def tasks_have_begun(self) -> None:
            """Or never will."""

        def read(self) -> None:
            """Takes what it says."""

        def judge(self) -> None:
            """After a collection of children: the step may have to end."""

        def task_ended(self, task: Task) -> None:
            """The step may have to end."""

        def ended(self, pid: int, status: int) -> None:
            """A child that is no task; it may be the server."""

        def finish(self) -> None:
            """The step is over."""

        def remove_group(self) -> None:
            """And its processes have ended."""


STEPD_SLOT = 0
LINK = 3  # the place of the connection to the daemon among the descriptors of an order
_OOM_ADJUSTMENT = b"-999"


class StepFailed(Exception):
    """The step cannot go on; str() says what failed. `stepd.main` catches it, in one place."""


class Descriptors:
    """What the daemon handed over with the step; the daemon has made all of it. `client` is the uid of the client that
    waits for the step, None for none: then `streams`, `orders` and `news` are -1.

    `streams` is a socket in which the client's standard streams wait, or will wait. Tasks and pumps take copies of them
    there. The stepd itself neither receives nor closes them: their maker could make that take any time.

    `of_user` are other sockets in which something of the user's may lie when the stepd ends.

    `lifeline` is a pidfd of the process that asked for the step, where the step is not to outlive it; else -1.
    """

    __slots__ = ("client", "lifeline", "link", "listener", "news", "of_user", "orders", "progress", "streams", "trace")

    def __init__(self, fds: "Sequence[int]", client: "int | None", lifeline: int = -1) -> None:
        self.trace, self.progress, self.listener, link, *rest = fds
        self.link = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, link)
        self.client = client
        self.lifeline = lifeline
        self.streams, self.orders, self.news = rest or (-1, -1, -1)
        self.of_user: list[int] = []


class Run(StepContext):
    """One step being run: what its tasks share, and what the stepd alone needs. State words are Slurm's: RUNNING, then
    COMPLETED, FAILED, CANCELLED, TIMEOUT, OUT_OF_MEMORY.
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
        "may_be_spared",
        "may_fork_into_cgroup",
        "may_share_memory",
        "mpi",
        "on_begun",
        "orphans",
        "plugin_output",
        "private",
        "pumps",
        "reason",
        "recorder",
        "script",
        "seen_at",
        "spoiled",
        "state",
        "suspended_seconds",
        "uncounted_seconds",
        "unkillable",
    )  # fmt: skip

    links: "Links"
    seen_at: str  # the path of the socket at which others attach to its streams

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
        self.caller = PluginCaller(self.recorder, self.progress, STEPD_SLOT, step.hook_timeout, single_threaded=True)
        only = EXTERN_HOOKS if step.step_id == EXTERN else None
        self.spank = Stack(self.caller, Spank(S_CTX_REMOTE, step), only)
        self.group = tree.Group(cgroup_mount + step.cgroup) if step.cgroup else None
        numbered = enumerate(zip(step.cpu_masks, step.numbers, strict=True))
        self.tasks = [Task(place, mask, number) for place, (mask, number) in numbered]
        self.spank.handle.tasks = self.tasks
        self.aside: tree.Group | None = None  # where the stepd is to end, where that is not in the step's cgroup
        self.children: list[Child] = []  # what its tasks are made of
        self.gate_writer = -1
        self.gate_is_open = False
        self.may_be_spared = False
        self.may_share_memory = self.may_fork_into_cgroup = True  # until the kernel refuses it
        self.private: list[int] = []  # descriptors of the stepd that no task needs
        self.on_begun: Callable[[], None] | None = None  # called when the gate is open
        self.pumps = Pumps()
        self.mpi: Mpi | None = None  # where its MPI plugin has a server
        self.orphans = accounting.Orphans()
        self.fatal = ""  # why the step has to end: what a required plugin did in a task
        self.failures: dict[int, str] = {}  # why a task never became its program
        around = cgroup_mount + cgroup_of() if cgroup_mount and self.group is None else ""
        self.end_reasons = EndReasons(step, self.tasks, self.group, self.say, around)
        # Those that an admin has decided on are uncounted, too: neither for the time limit nor as use.
        self.suspended_seconds = self.uncounted_seconds = 0.0
        self.unkillable = ""
        self.clock = accounting.StepClock()
        self.state = "RUNNING"
        self.reason = ""
        self.plugin_output: PluginOutput | None = None  # only where there are SPANK plugins
        self.script: Messages | None = None  # only of a batch job's script
        self.bulk: Commands | None = None  # of a bulk step, when commands can come
        self.spoiled = ""  # why a step has failed although its tasks ended well

    def plugin_being_called(self) -> str:
        """Which SPANK plugin is being called, and for which step; "" for none."""
        stacked = self.spank.handle.plugin
        return "" if stacked is None else f"plugin {stacked.plugin.name}: step {self.step}"

    def call_name(self, hook: "Hook", place: int) -> str:
        """The call that the progress shows, and the plugin that it belongs to."""
        plugin = self.node.name(hook.kind, place) if hook.kind != "spank" else self.spank.name(place)
        return f"{hook.call} of plugin {plugin}" if plugin else hook.call

    def pass_on_plugin_output(self) -> None:
        """Sends what hooks have written to stderr to the user and to the log."""
        for line in self.plugin_output.take() if self.plugin_output is not None else ():
            self.links.broadcast_line(line)
            messages.to_log(f"nodectl stepd: step {self.step}: {messages.printable(line)}", "plugin-output")

    def require(self, outcome: "Outcome") -> None:
        """Raises StepFailed for a call that failed."""
        if not outcome:
            raise self.failed(outcome.why)

    def failed(self, why: str) -> StepFailed:
        """The step cannot go on. The user is told at once, before the tasks end that wait at the gate."""
        self.say(why)
        self.end_as("FAILED", why)
        return StepFailed(why)

    def unforeseen(self, error: Exception) -> str:
        """What the step runner was doing when it met an error that nobody foresaw, and the error with its errno and its
        object, in one line. Where it was raised goes into the log.
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
        """For calls whose failure is only logged."""
        if not outcome:
            messages.error(f"step {self.step}: {outcome.why}")

    def end_as(self, state: str, reason: str) -> None:
        """Sets state and reason, once: what comes later follows from the first reason."""
        if self.state == "RUNNING":
            self.state, self.reason = state, reason

    def enter(self, call: str) -> int:
        """The stepd begins a row of the launch order. Returns the time, for `leave`."""
        self.progress.enter(STEPD_SLOT, ROWS[call])
        return now()

    def leave(self, call: str, started: int, *, task: "int | None" = None, rc: int = 0, note: str = "") -> None:
        """The row is over: writes it to the trace."""
        self.recorder.write(ROWS[call], started, task=task, rc=rc, note=note)

    def say(self, text: str) -> None:
        """An error of this step, for its user."""
        messages.error(f"step {self.step}: {text}")

    def spoil(self, why: str) -> None:
        """The step has failed, however well its tasks end."""
        self.say(why)
        self.spoiled = self.spoiled or why

    def announce_cancel(self, why: str) -> None:
        """The line that users of batch systems know; `why` is "DUE TO TIME LIMIT" and the like, or ""."""
        at = time.strftime("%Y-%m-%dT%H:%M:%S")
        what = f"JOB {self.step.job_id}" if self.step.step_id == BATCH else f"STEP {self.step}"
        messages.error(f"*** {what} ON {self.step.node_name} CANCELLED AT {at} {why}".rstrip() + " ***")

    def kill(self) -> None:
        """Sends SIGKILL to every process of the step that its tracker finds."""
        if self.step.container_id:
            self.log(self.node.call(self.caller, "proctrack_p_signal", (self.step.container_id, 9)))
        if self.bulk is not None:
            self.bulk.killed()

    def enter_container(self) -> bool:
        """In a new child that is no task: joins the job's container. False where that fails, which is logged."""
        plugin, call = self.node.container, "container_p_add_pid"
        function = plugin.hooks.get(call)
        if function is None:
            return True
        outcome = self.caller.silent(function, (self.step.job_id, os.getpid(), self.step.uid))
        if not outcome:
            messages.error(f"step {self.step}: plugin {plugin.title}: {call}: {outcome.why}")
        return bool(outcome)

    def descriptors(self) -> list[int]:
        """The stepd's descriptors that no task may keep. With a copy of the gate's writing end in a task, the others
        would not notice the stepd's death.
        """
        fds = [*self.private, *self.caller.descriptors(), *self.links.descriptors(), self.gate_writer]
        return [fd for fd in fds if fd >= 0]

    def close_gate(self) -> None:
        """A task that still waits there reads the end of the pipe and exits 1."""
        os.close(self.gate_writer)
        self.gate_writer = -1

    def all_have_begun(self) -> None:
        """Every task is its program, or has ended, and has memory of its own: from now on the stepd is spared when
        memory runs out. Not earlier, because the kernel spares all who share memory alike, and programs inherit that.
        """
        self.close_gate()
        self.children.clear()  # nobody reads it any more
        if not self.may_be_spared:
            return
        try:
            pseudo_file.write("/proc/self/oom_score_adj", _OOM_ADJUSTMENT)
        except OSError:
            pass  # a plugin has given the stepd another root, without a /proc

    def status(self) -> "dict[str, object]":
        """What a running step shows of itself."""
        return {
            "job": self.step.job_id,
            "step": self.step.step_id,
            "uid": self.step.uid,
            "state": self.state,
            "pid": os.getpid(),
            "container_id": str(self.step.container_id),
            **({"bulk": self.bulk.figures()} if self.bulk is not None else {}),
            "tasks": [
                {
                    "task": task.number,
                    "pid": task.pid,
                    "status": task.status,
                    "cpus": f"{task.mask:x}" if task.mask else "",
                }
                for task in self.tasks
            ],
        }

    def spawn(self) -> int:
        """fork(2), from one thread only. The child is in the step's cgroup, wherever the stepd is."""
        assert self.caller.one_thread(), "fork with threads"  # noqa: S101  # the caller has checked
        if self.group is None or not (self.kept or self.step.within):
            return os.fork()
        group = self.helpers_group()
        if self.kept:
            return group.fork()
        pid = os.fork()  # where a plugin has had threads only libc's will do
        if pid == 0:
            _enter_or_end(group)
        return pid

    def helpers_group(self) -> tree.Group:
        """Where a step's stepd is, and what it forks that is no task; made where the stepd is elsewhere, because it
        serves several steps or stands beside another manager's. Raises OSError.
        """
        assert self.group is not None  # noqa: S101  # who has none does not ask
        return self.group.child("stepd").make()


def _enter_or_end(group: tree.Group) -> None:
    """In a new child."""
    try:
        group.add(0)
    except OSError as error:
        messages.to_log(f"nodectl stepd: enter {group.full_path}: {error.strerror}")
        os._exit(1)
