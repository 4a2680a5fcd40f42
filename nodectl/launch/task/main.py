"""The life of a task, from birth to program: the stages of SEQUENCE (`stages.py`), in order.

A stage is data: operations (`nodectl/kernel/operations.py`), composed by the stepd, which C carries out in the task's
own process; root until `drop_privileges`, the user from there on. Nothing is looked up or imported there: the step's
user, environment, masks and streams were decided before. A failure ends the task: the reason goes to the stepd through
the report pipe, and the operation chooses the exit status.

Where something has to be called in the task, a stage has an escape, a function, in the place of operations. Without an
escape the task is a child that shares the stepd's memory until its program begins (`launch`), and costs only its system
calls. With an escape it is a fork of the stepd (`run_task`), which calls the function and has the same C carry out the
operations between two of them. The operations before the first call of a plugin are composed before the fork, too
(`prepare`).
"""

import _signal
import os

from nodectl import messages
from nodectl.kernel import _kernel, identity, operations, pseudo_file
from nodectl.launch.task.child import Child, TaskEnds, children_are_elsewhere
from nodectl.launch.task.stages import BAD_ARGUMENTS, LOOKS_AT, SEQUENCE, USUAL_TMPDIR
from nodectl.model import launch_order

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import NoReturn

    from nodectl.kernel.operations import Operation
    from nodectl.launch.task.child import Piece

_OURS = (identity.enter, pseudo_file.let_go)  # escapes that change nothing that a stage looks at


def plan(child: Child) -> "list[Operation] | None":
    """Return all operations of a task, in the stepd; None where something has to be called in the task.

    The operations of stages equal to those of the task before are reused.
    """
    if child.context.spank.has(launch_order.SPANK_TASK_INIT):
        return None  # `task_init` would say so when nearly all is composed
    found: list[Operation] = []
    common = child.context.common_stages
    try:
        for stage in SEQUENCE:
            look = LOOKS_AT.get(stage)
            seen = None if look is None else look(child)
            if look is not None and stage in common and common[stage][0] == seen:
                found += common[stage][1]
                continue
            wanted: list[Operation] = list(stage(child))  # type: ignore[arg-type]  # as the next line checks
            if not {tuple}.issuperset(map(type, wanted)):
                return None
            found += wanted
            if look is not None:
                common[stage] = seen, wanted
    except ValueError as error:
        found.append(_impossible(child, error))
    return found


def launch(child: Child, wanted: "list[Operation]", cgroup_fd: int) -> int:
    """Start a task, in the stepd, with the operations `wanted`. Returns the task's pid.

    The task is born in this cgroup (-1: the stepd's), in the memory of an ended task, if the child has one. Raises
    OSError where the kernel cannot; the task may be forked then.
    """
    try:
        pid, child.memory = _kernel.start(wanted, child.for_operations(), cgroup_fd, child.memory)
    except (TypeError, ValueError, OverflowError) as error:  # of a site's plugin
        raise OSError(BAD_ARGUMENTS, f"what a task plugin wants done: {error}") from error
    return pid


def prepare(child: Child) -> None:
    """Compose the task's operations in the stepd before the fork, up to the first call that may change later ones.

    This is the first call of a plugin, or the call that writes the task's own number into its environment. Python in
    the fork costs a copy of every page that it counts references in.
    """
    child.is_fork = True
    child.rest = pieces(child)
    elsewhere = children_are_elsewhere()
    if elsewhere is None:
        return  # the task will look itself
    child.stepd = 0 if elsewhere else os.getpid()
    for piece in child.rest:
        child.ahead.append(piece)
        if not isinstance(piece, tuple) and piece not in _OURS:
            return


def run_task(child: Child, cgroup: "str | None") -> "NoReturn":
    """Run the whole task in a fork of the stepd. Never returns.

    `cgroup` is the cgroup to enter, None for a task born in it.
    """
    status = 1
    child.stepd = os.getppid()
    child.task.pid = os.getpid()
    child.step.task = child.task
    child.caller = child.make_caller()
    child.context.spank.through(child.caller)
    try:
        _signal.set_wakeup_fd(-1)
        for number in (_signal.SIGTERM, _signal.SIGCHLD):  # the stepd's handlers would interrupt a call of the kernel's
            _signal.signal(number, _signal.SIG_DFL)
        messages.listen(child.say, level=child.step.verbose + messages.ERROR)
        messages.keep_through(child.log)
        if cgroup is not None:
            pseudo_file.write(f"{cgroup}/cgroup.procs", b"0")
        _carry_out(child)
    except TaskEnds as end:
        status = end.status
        if str(end):
            child.tell("fatal" if end.ends_step else "failed", str(end))
    except OSError as error:
        where = f" {error.filename!r}" if error.filename else ""
        child.tell("failed", f"{error.strerror}{where} (as {child.step.user_name})")
    except BaseException as error:  # the top of a process
        child.tell("failed", f"{type(error).__name__}: {error}")
    finally:
        os._exit(status)


def _carry_out(child: Child) -> None:
    """Carry out the operations between two escapes together, and call the escapes."""
    stretch: list[Operation] = []
    for found in (child.ahead, child.rest):
        for piece in found:
            if isinstance(piece, tuple):
                stretch.append(piece)
                continue
            _perform(child, stretch)
            piece()
    _perform(child, stretch)


def pieces(child: Child) -> "Iterator[Piece]":
    """Yield the pieces of all stages in order. Pieces behind an escape are composed after the escape's call."""
    try:
        for stage in SEQUENCE:
            yield from stage(child)
    except ValueError as error:
        yield _impossible(child, error)


def _impossible(child: Child, error: ValueError) -> "Operation":
    """Return a failing operation, in the place of a stage with an impossible path."""
    return operations.fail(f"{error}{child.as_user}", 1)


def _perform(child: Child, stretch: "list[Operation]") -> None:
    if stretch and _kernel.perform(stretch, child.for_operations()):
        child.task.environment["TMPDIR"] = USUAL_TMPDIR  # the directory could not be made
    stretch.clear()
