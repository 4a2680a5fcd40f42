"""The state shared by the stages of a task, and the exception by which a stage ends the task.

The stepd makes it before the first fork; the task's own process uses it.
"""

import os

from nodectl.kernel import operations
from nodectl.launch.confine.confinement import Confinement
from nodectl.launch.task.placement import PlacementPipe, must_wait
from nodectl.model import launch_order
from nodectl.model.wire import framing
from nodectl.plugin_host.caller import OK, PluginCaller
from nodectl.plugin_host.node_plugins import call_one
from nodectl.plugin_host.tracing.progress import number_of
from nodectl.plugin_host.tracing.recorder import Recorder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from nodectl.kernel.operations import Operation
    from nodectl.launch.task.step_context import StepContext
    from nodectl.model.launch_order import Hook
    from nodectl.model.step import Task
    from nodectl.plugin_host.caller import Outcome
    from nodectl.plugin_host.loader import Plugin

    Piece = Operation | Callable[[], None]

_CALL = (None, OK)  # a plan that asks for a call of the plugin
_LONGEST_REPORT = 3000  # below PIPE_BUF: reports of several tasks never mix


class TaskEnds(Exception):
    """The end of a task before the program has begun, with this exit status.

    str() is the reason, "" for none. With `ends_step` the step ends, too.
    """

    def __init__(self, reason: str, status: int = 1, *, ends_step: bool = False) -> None:
        super().__init__(reason)
        self.status = status
        self.ends_step = ends_step


class Child:
    """A task, as seen by the stages."""

    caller: PluginCaller  # in a fork

    __slots__ = (
        "_plans", "ahead", "as_user", "caller", "confinement", "context", "gate", "groups", "hard_limits", "is_fork",
        "memory", "placement", "recorder", "report", "rest", "slot", "step", "stepd", "stepd_fds", "task",
    )  # fmt: skip

    def __init__(  # everything that the stepd has made for it
        self, context: "StepContext", task: "Task", gate: int, report: int, stepd_fds: "Sequence[int]",
        hard_limits: "list[Operation]",
    ) -> None:  # fmt: skip
        """Prepare a task in the stepd, before the first fork: objects made here cost no pages in the tasks."""
        self.context = context
        self.step = context.step
        self.task = task
        self.gate = gate
        self.placement = PlacementPipe() if must_wait(context.node) else None
        self.report = report
        self.stepd_fds = stepd_fds  # what the task closes first
        self.hard_limits = hard_limits
        self.stepd = os.getpid()  # 0 in the job's pid namespace
        self.is_fork = False
        # The pieces of a fork: those composed by the stepd, and the iterator that composes the rest.
        self.ahead: list[Piece] = []
        self.rest: Iterator[Piece] = iter(())
        self._plans: dict[tuple[Hook, int], tuple[object, Outcome]] = {}  # by the row and the plugin's place
        # Memory of a task that shares the stepd's, kept until the program runs; before the start, an ended task's.
        self.memory: object = None
        self.groups = max(len(self.step.identity.gids), len(os.getgroups()))
        self.as_user = f" (as {context.step.user_name})"
        self.confinement = Confinement(context.step, task.environment)
        self.slot = task.local_id + 1
        cgroup = None if context.group is None else f"{context.step.cgroup}/user/task_{task.local_id}"
        self.recorder = Recorder(context.trace, "task", cgroup=cgroup, task=task.number)

    def make_caller(self) -> PluginCaller:
        """Return the caller of plugins, in a fork. Threads left by a hook do no harm: exec ends all threads."""
        progress, limit = self.context.progress, self.step.hook_timeout
        successors = progress.inheritance(self.slot)
        return PluginCaller(self.recorder, progress, self.slot, limit, single_threaded=False, successors=successors)

    def for_operations(self) -> "tuple[int, int, int, str, memoryview, int, int]":
        """Return the places to which operations report: see `_kernel.start`."""
        recorder, progress = self.recorder, self.context.progress.memory
        task = self.task.number
        return self.report, recorder.fd, task, recorder.of_process(), progress, self.slot, self.groups

    @property
    def has_terminal(self) -> bool:
        """True for the task with the terminal of --pty as its streams."""
        return self.step.pty[:1] == [self.task.number]

    def row(self, row: "Hook") -> "Operation":
        """Return the operation beginning nodectl's own row of the launch order."""
        return operations.row(number_of(row), 0, self.recorder.facts(row, ""))

    def task_plugins(self, row: "Hook") -> "Iterator[Operation | Callable[[], None]]":
        """Yield the work of the task plugins in this row.

        This is the operations of a plugin's plan, or a function that calls the plugin.
        """
        for place, plugin in enumerate(self.context.node.stacks["task"]):
            if row.plan in plugin.hooks:
                yield from self._planned(row, place, plugin)
            elif row.call in plugin.hooks:
                yield self._calling(row, place, plugin)

    def container_plugin(self, row: "Hook") -> "Iterator[Operation | Callable[[], None]]":
        """Yield the work of joining the job's container, nothing without a container.

        This is the operations of the plugin's plan, or a function that calls the plugin.
        """
        plugin = self.context.node.container
        if self._plans.get((row, 0), _CALL) != _CALL:
            yield from self._planned(row, 0, plugin)
        elif row.call in plugin.hooks:
            yield lambda: self._join_container(row)

    @property
    def answers(self) -> object:
        """The plans returned by plugins for this task, to be compared with another task's."""
        return self._plans

    def _planned(self, row: "Hook", place: int, plugin: "Plugin") -> "Iterator[Operation]":
        wanted, outcome = self._plans[row, place]
        who = f"plugin {plugin.title}: {row.call}: "
        yield operations.row(number_of(row), place, self.recorder.facts(row, plugin.type), who)
        if not outcome or not isinstance(wanted, list):
            yield operations.fail(outcome.why or f"returned {wanted!r}, not a list of operations", 1)
            return
        yield from wanted
        yield operations.end_row()

    def ask_plugins(self, caller: PluginCaller) -> None:
        """Ask the plugins, in the stepd as root, for plans: operations in this task in the place of calls."""
        with caller:
            for row in (launch_order.TASK_PRE_LAUNCH_PRIV, launch_order.TASK_PRE_LAUNCH):
                for place, plugin in enumerate(self.context.node.stacks["task"]):
                    plan = plugin.hooks.get(row.plan)
                    if plan is not None:
                        self._plans[row, place] = _kept(*caller.value(plan, (self.step, self.task)))
            row = launch_order.CONTAINER_ADD_PID
            plan = self.context.node.container.hooks.get(row.plan)
            if plan is not None and self.placement is None:
                self._plans[row, 0] = _kept(*caller.value(plan, (self.step, self.task)))
                if children_are_elsewhere():
                    self.stepd = 0

    def _calling(self, row: "Hook", place: int, plugin: "Plugin") -> "Callable[[], None]":
        return lambda: self.require(call_one(self.caller, row, place, plugin, (self.step,)))

    def _join_container(self, row: "Hook") -> None:
        """Join the job's container, in a fork, once the tracker has the task."""
        if self.placement is not None:
            self.placement.wait(self.context.progress, self.slot)
        step = self.step
        self.require(self.context.node.call(self.caller, row, (step.job_id, os.getpid(), step.uid)))

    def spank(self, row: "Hook") -> None:
        """Call the SPANK plugins, in a fork. The failure of a required plugin ends the step."""
        outcome = self.context.spank.call(row, self.task)
        if not outcome:
            raise TaskEnds(outcome.why, ends_step=True)

    def begin_row(self, row: "Hook") -> int:
        """Note the begin of nodectl's own row of the launch order. Returns the time, for `end_row`."""
        self.context.progress.enter(self.slot, row)
        return self.recorder.begin(row)

    def end_row(self, row: "Hook", started: int, rc: int = 0, note: str = "") -> None:
        """Write a finished row to the trace."""
        self.recorder.write(row, started, rc=rc, note=note)

    def require(self, outcome: "Outcome") -> None:
        """Raise TaskEnds if the call failed."""
        if not outcome:
            raise TaskEnds(outcome.why)

    def say(self, line: str) -> None:
        """Send a line to the step's user."""
        self.tell("say", line)

    def log(self, line: str) -> None:
        """Send a line to the log."""
        self.tell("log", line)

    def tell(self, key: str, text: str) -> None:
        """Send a report to the stepd. `key` is "say", "log", "failed" or, where the step ends too, "fatal"."""
        data = framing.encode({"task": self.task.number, key: text[: _LONGEST_REPORT // 6]})
        try:
            os.write(self.report, data)
        except OSError:
            pass  # the stepd has died, and no other process reads the pipe


def _kept(wanted: object, outcome: "Outcome") -> "tuple[object, Outcome]":
    """Return a plugin's answer with a copy of the list: the plugin may change the list for the next task."""
    return (wanted.copy() if type(wanted) is list else wanted), outcome


def children_are_elsewhere() -> bool | None:
    """Return True if the stepd's children are born in another pid namespace. Called in the stepd.

    None where the stepd cannot tell, because a plugin has given it another root; its tasks are forks then, which look
    for themselves.
    """
    try:
        born, own = (os.stat(f"/proc/self/ns/{name}").st_ino for name in ("pid_for_children", "pid"))
    except OSError:
        return None
    return born != own
