"""The task of a command in a bulk step, and the start of the task in a slot.

It differs from any task in that it has the slot to itself, a process group and a gate of its own, and no other task to
wait for.
"""

import os

from nodectl.kernel import _kernel, operations
from nodectl.launch.stepd.bulk_commands import CLIENT, NOTHING, BulkCommand
from nodectl.launch.stepd.start import must_fork, start
from nodectl.launch.streams.stdio import CLIENT as CLIENTS
from nodectl.launch.streams.stdio import ERR, IN, OUT, Stream
from nodectl.launch.task import environment, rlimits
from nodectl.launch.task.child import Child
from nodectl.launch.task.common_words import CommonWords
from nodectl.launch.task.main import plan
from nodectl.launch.task.stages import execution
from nodectl.launch.task.step_context import StepContext
from nodectl.model import launch_order
from nodectl.model.step import Task

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from nodectl.kernel.operations import Operation
    from nodectl.launch.cgroup import tree
    from nodectl.launch.stepd.reaper import Reaper
    from nodectl.launch.stepd.run import Run

TRACED = 32  # commands of a step whose rows are in its trace
_NULL = "/dev/null"
_MOST_FILES = 256  # files whose names are kept: a client lets files that stay empty serve further commands


class BulkTask(Task):
    """The task of a command in a slot.

    The slot is the local id on this node, and the `number` in the whole step. `deadline` is a time of the step's own
    clock, None for none.
    """

    __slots__ = ("child", "command", "deadline", "failure", "group", "kills", "lane", "peak", "started")

    def __init__(self, slot: Task, command: "BulkCommand", group: "tree.Group | None") -> None:
        super().__init__(slot.local_id, slot.mask, slot.number)
        self.command = command
        self.group = group
        # Either is kept until the command has ended: it may share the stepd's memory.
        self.child: Child | None = None
        self.lane: object = None
        self.started = 0.0
        self.deadline: float | None = None
        self.kills = 0  # signals that it got because its time was over
        self.peak: int | None = None  # bytes, where its cgroup knows
        self.failure = ""

    @property
    def global_id(self) -> int:
        """The command's number, given by the client."""
        return self.command.seq


class _Streams:
    """The streams of the starting task, in the form expected by `task.main`.

    `tasks` changes with each start: another task takes the streams each time.
    """

    taking = operations.ALL_STAY

    def __init__(self) -> None:
        self.tasks: dict[int, list[Stream]] = {}
        self._both = Stream(ERR, fd=OUT)  # one open file for both, so that neither truncates the other
        self._usual = {(number, CLIENT): Stream(number, fd=CLIENTS[number]) for number in (IN, OUT, ERR)}
        self._usual.update({(number, NOTHING): Stream(number, path=_NULL) for number in (IN, OUT, ERR)})
        self._files: dict[tuple[int, str], Stream] = {}

    def are_of(self, task: BulkTask) -> None:
        """Set the streams named by the task's command."""
        self.tasks = {task.local_id: self.of(task.command, task.number)}

    def of(self, command: "BulkCommand", slot: int) -> list[Stream]:
        """Return the three streams of a command in a slot."""
        found = [self._stream(IN, command.stdin, command, slot), self._stream(OUT, command.stdout, command, slot)]
        both = command.stderr == command.stdout and command.stderr not in (CLIENT, NOTHING)
        found.append(self._both if both else self._stream(ERR, command.stderr, command, slot))
        return found

    def _stream(self, number: int, path: str, command: "BulkCommand", slot: int) -> Stream:
        found = self._usual.get((number, path))
        if found is None:
            file = number, command.in_slot(path, slot)
            found = self._files.get(file)
            if found is None:
                if len(self._files) >= _MOST_FILES:
                    self._files.clear()
                found = self._files[file] = Stream(number, path=file[1])
        return found


class Starter:
    """The parts common to all tasks of a bulk step, made once. The constructor raises OSError."""

    __slots__ = (
        "_context", "_limits", "_memory", "_reaper", "_run", "_stages", "_streams", "_user", "_variables", "_words",
        "forks",
    )  # fmt: skip

    def __init__(self, run: "Run", reaper: "Reaper") -> None:
        self._run = run
        self._reaper = reaper
        self._limits = rlimits.hard_limits(run.step.hard_limits)
        self.forks = must_fork(run.step)
        self._variables = environment.for_tasks(run.step)
        self._memory: dict[int, object] = {}  # by slot: the memory of an ended task serves the slot's next task
        self._user = None if run.group is None else run.group.child("user")
        self._streams = _Streams()
        self._context = context = StepContext()
        for name in StepContext.__slots__:
            if name not in ("common_stages", "common_words", "streams", "tasks"):
                setattr(context, name, getattr(run, name))
        context.common_words = self._words = CommonWords(self._variables)
        self._stages: list[dict[Callable[..., object], tuple[object, list[Operation]]]] = [{} for _ in run.tasks]
        context.streams = self._streams  # type: ignore[assignment]  # what tasks need of it

    def make(self, slot: Task, command: "BulkCommand") -> BulkTask:
        """Return the task of a command, with words and variables. `slot` holds the sums of the slot's earlier tasks."""
        task = BulkTask(slot, command, self.group(slot.local_id))
        task.argv = command.words(slot.number)
        task.environment = environment.for_task(self._run.step, task, self._variables)
        task.environment.update(_own_variables(command), PARALLEL_JOBSLOT=str(slot.number + 1))
        return task

    def group(self, slot: int) -> "tree.Group | None":
        """Return the cgroup of commands in a slot, None in a step without a cgroup."""
        return None if self._user is None else self._user.child(f"task_{slot}")

    # Commands that C starts.

    def lane(self, slot: Task, command: "BulkCommand", *, keeps_cgroup: bool) -> object:
        """Return a lane of the slot for commands with the streams of this one; None where there can be none.

        `keeps_cgroup`: all commands share the slot's cgroup.
        A plugin's plan that depends on the command's number would be another one for each command.
        """
        other, child = (self._of_lane(slot, seq, command) for seq in (command.seq ^ 1, command.seq))
        wanted = plan(child) if child.answers == other.answers else None
        if wanted is None:
            return None
        without_gate = [operation for operation in wanted if operation[0] != _kernel.OP_WAIT]
        group = self.group(slot.local_id) if keeps_cgroup else self._user
        directory = -1
        try:
            directory = -1 if group is None else group.make().open()
            name = "" if keeps_cgroup else f"task_{slot.local_id}"
            return _kernel.lane(without_gate, child.for_operations(), directory, name)
        except OSError:
            return None
        finally:
            if directory >= 0:
                os.close(directory)

    def _of_lane(self, slot: Task, seq: int, command: "BulkCommand") -> Child:
        """Return a task with this number and the command's streams, without a command's own variables."""
        task = self.make(slot, BulkCommand({"seq": seq, "argv": command.argv}))
        for name in _own_variables(command):
            del task.environment[name]
        self._context.tasks, self._context.common_stages, self._context.trace = [task], {}, -1
        self._streams.tasks = {task.local_id: self._streams.of(command, task.number)}
        child = Child(self._context, task, -1, self._reaper.report, self._run.descriptors(), self._limits)
        child.ask_plugins(self._run.caller)
        return child

    def operations(self, command: "BulkCommand") -> "list[Operation]":
        """Return the operations in which a command differs from another one of a lane. Raises ValueError."""
        behind = f" (as {self._run.step.user_name})"
        streams = [stream.connection(behind, of_script=False) for stream in self._streams.of(command, 0)]
        program = self._words.execution(
            command.argv[0], self._variables.get("PATH"),
            lambda name, path: execution(name, path, self._run.step.cwd, behind),
        )  # fmt: skip
        return [*streams, operations.environment(_own_variables(command)), operations.argv(command.argv), program]

    def start(self, task: BulkTask) -> None:
        """Start the process of a task in the task's cgroup, and let the process through the gate.

        Raises OSError where no process could be started, and LaunchFailed.
        """
        run = self._run
        self._context.tasks = [task]
        self._context.common_stages = self._stages[task.local_id]
        self._context.trace = run.recorder.fd
        self._streams.are_of(task)
        run.progress.clear(task.local_id + 1)
        gate, run.gate_writer = os.pipe2(os.O_CLOEXEC)
        try:
            run.preload.introduce(task)
            task.child = child = Child(self._context, task, gate, self._reaper.report, run.descriptors(), self._limits)
            child.memory = self._memory.pop(task.local_id, None)
            child.ask_plugins(run.caller)
            wanted = None if self.forks else plan(child)
            try:
                start(run, child, task.group, wanted)
                self.forks = wanted is None or not run.may_share_memory  # a call in the first task is in all
                self._memory[task.local_id] = child.memory
                self._reaper.expect(task)
                run.call(launch_order.PROCTRACK_ADD, run.step, task.pid, task=task)
                if child.placement is not None:
                    child.placement.done()
            finally:
                if child.placement is not None:
                    child.placement.close()
            run.call(launch_order.SPANK_TASK_POST_FORK, task=task)
            os.write(run.gate_writer, b"\1")
        finally:
            os.close(run.gate_writer)
            os.close(gate)
            run.gate_writer = -1
            run.preload.begun(task)


def _own_variables(command: BulkCommand) -> dict[str, str]:
    """Return the variables with the command's number."""
    seq = str(command.seq)
    return {"SLURM_PROCID": seq, "NODECTL_BULK_SEQ": seq, "PARALLEL_SEQ": seq}
