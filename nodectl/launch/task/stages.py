"""The stages of a task, in the order of SEQUENCE. Each yields operations, and functions to be called.

Root until `drop_privileges`, the user from there on. A stage is composed by the stepd, or by its fork where something
has to be called in the task (`main.py`). Raises ValueError for a path that the kernel could not be given.
"""

import _signal
import os

import prctl

from nodectl import messages
from nodectl.kernel import identity, operations, pseudo_file
from nodectl.launch.confine import scripts
from nodectl.launch.streams.stdio import CLIENT
from nodectl.launch.task import rlimits
from nodectl.launch.task.child import Child, TaskEnds
from nodectl.model import launch_order
from nodectl.model.step_number import BATCH

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from nodectl.kernel.operations import Operation
    from nodectl.launch.task.child import Piece

# Signals that a stepd ignores: those of a terminal, and those meant for tasks.
IGNORED = (_signal.SIGINT, _signal.SIGHUP, _signal.SIGQUIT, _signal.SIGUSR1, _signal.SIGUSR2, _signal.SIGTSTP)
# Python ignores SIGPIPE and SIGXFSZ; the stepd has handlers for SIGTERM and SIGCHLD.
_CHANGED = (*IGNORED, _signal.SIGPIPE, _signal.SIGXFSZ, _signal.SIGTERM, _signal.SIGCHLD)
_MISSING_ARGUMENTS = 2
BAD_ARGUMENTS = 22  # EINVAL
_NOT_FOUND = " (a shell's for what is missing or cannot be executed)"  # behind 127
USUAL_TMPDIR = "/tmp"  # as with Slurm
_LONGEST_NAME = 255  # characters, of a file
_MOST_CANDIDATES = 1 << 17  # bytes of paths at which to look for a program


def join_process_group(child: Child) -> "Iterator[Piece]":
    """Join the step's process group: from here on signals to the group do not reach the stepd."""
    if child.has_terminal:
        yield operations.new_session()
    elif child.stepd != 0:  # else in the job's pid namespace: only the stepd, outside, knows the leader's pid
        first = child.context.tasks[0]
        yield operations.join_group(child.step.process_group or (0 if child.task is first else first.pid))


def leave_stepd(child: Child) -> "Iterator[Piece]":
    """Close the stepd's own descriptors."""
    yield operations.close(child.stepd_fds)


def set_hard_limits(child: Child) -> "Iterator[Piece]":
    """Set the node's hard limits. After this only plugins running as root may change them."""
    yield from child.hard_limits


def pre_launch_priv(child: Child) -> "Iterator[Piece]":
    """Call the task plugins, as root: binding."""
    yield from child.task_plugins(launch_order.TASK_PRE_LAUNCH_PRIV)


def join_container(child: Child) -> "Iterator[Piece]":
    """Join the job's container: paths lead into the container from here on."""
    yield from child.container_plugin(launch_order.CONTAINER_ADD_PID)


def task_init_privileged(child: Child) -> "Iterator[Piece]":
    """Call the SPANK plugins, as root; not in a node of a user's own."""
    if child.context.spank.has(launch_order.SPANK_TASK_INIT_PRIVILEGED) and identity.BEGAN_AS == 0:
        yield lambda: child.spank(launch_order.SPANK_TASK_INIT_PRIVILEGED)


def drop_privileges(child: Child) -> "Iterator[Piece]":
    """Become the job's user, for good."""
    who = child.step.identity
    if child.is_fork:
        yield identity.enter  # the job's user namespace: root there is not root here, and root's hooks are over
    yield child.row(launch_order.BECOME_USER)
    yield from child.confinement.bounds()
    yield operations.become_user(who.uid, who.gid, who.gids, child.as_user)
    yield operations.end_row()
    if child.is_fork:
        yield pseudo_file.let_go  # only root's hooks may need it
    else:
        yield operations.close(pseudo_file.held())


def die_with_stepd(child: Child) -> "Iterator[Piece]":
    """Have the task die with the stepd, where the step has no cgroup.

    Nothing else shows then which processes are the step's. Not earlier: a change of the user ID clears
    PR_SET_PDEATHSIG.
    """
    if child.context.group is None:
        yield operations.die_with(child.stepd)


def connect_streams(child: Child) -> "Iterator[Piece]":
    """Open descriptors 0, 1 and 2, files as the user."""
    streams, socket = child.context.streams, child.context.client_streams
    own = streams.tasks[child.task.local_id]
    yield operations.umask(child.step.umask)
    if socket >= 0:
        if any(stream.fd in CLIENT for stream in own):
            yield operations.take_streams(socket, streams.taking)
        yield operations.close((socket,))
    for stream in own:
        yield stream.connection(child.as_user, of_script=child.step.step_id == BATCH)
    if child.has_terminal:
        yield operations.controlling_terminal(0)


def enter_directory(child: Child) -> "Iterator[Piece]":
    """Enter the step's directory; if the user cannot, /tmp, with a message, as with Slurm."""
    step = child.step
    what = f"nodectl: error: step {step} task {child.task.number}: enter working directory {step.cwd!r}: "
    yield operations.enter_directory(step.cwd, what, f"{child.as_user}: going to {USUAL_TMPDIR} instead")


def wait_at_gate(child: Child) -> "Iterator[Piece]":
    """Wait until all tasks of the step exist and are tracked. The end of the pipe means no launch.

    The exec closes the pipe: so the stepd sees that the last task has become a program.
    """
    yield child.row(launch_order.GATE)
    yield operations.wait(child.gate)
    yield operations.end_row()


def default_signals(_: Child) -> "Iterator[Piece]":
    """Ignore and block no signal: a program starts as from a login shell.

    Before the user's hooks, because a plugin may execute a program in one.
    """
    yield operations.default_signals(_CHANGED)


def make_tmpdir(child: Child) -> "Iterator[Piece]":
    """Make TMPDIR, before files are locked. If TMPDIR is unset or cannot be made, use /tmp, with a warning."""
    path = child.task.environment.setdefault("TMPDIR", USUAL_TMPDIR)
    if path != USUAL_TMPDIR:  # which exists everywhere
        what = f"{messages.WARNING}make TMPDIR {path!r}: "
        yield operations.make_tmpdir(path, what, f"{child.as_user}: it is {USUAL_TMPDIR} instead")


def confine(child: Child) -> "Iterator[Piece]":
    """Deny the calls and files of the step's level.

    This comes before the user's hooks, each of which may execute a program: whatever the task becomes, it is confined.
    """
    denials = child.confinement.denials()
    if not denials:
        return
    yield child.row(launch_order.CONFINE)
    yield from denials
    early = child.context.spank.has(launch_order.SPANK_TASK_INIT)
    if early:
        yield from child.confinement.locks()
    yield operations.end_row()
    if child.is_fork:
        child.confinement.note(calls_denied=True, files_locked=early)


def pre_launch(child: Child) -> "Iterator[Piece]":
    """Call the task plugins, as the user."""
    if child.is_fork:
        yield lambda: child.task.environment.update(SLURM_TASK_PID=str(os.getpid()))
    else:
        child.task.environment["SLURM_TASK_PID"] = ""  # which C fills in
    yield from child.task_plugins(launch_order.TASK_PRE_LAUNCH)


def task_init(child: Child) -> "Iterator[Piece]":
    """Call the SPANK plugins, as the user."""
    if child.context.spank.has(launch_order.SPANK_TASK_INIT):
        yield lambda: _task_init(child)


def _task_init(child: Child) -> None:
    pid = os.getpid()
    child.spank(launch_order.SPANK_TASK_INIT)
    if os.getpid() != pid and child.context.group is None:
        prctl.set_pdeathsig(_signal.SIGKILL)  # the plugin has forked: its child is the task now


def task_prologs(child: Child) -> "Iterator[Piece]":
    """Run the site's script, then the user's. Both may change the task's environment."""
    for path in child.step.task_prologs:
        yield lambda path=path: _task_prolog(child, path)  # type: ignore[misc]  # mypy knows no default of a lambda


def _task_prolog(child: Child, path: str) -> None:
    started = child.begin_row(launch_order.TASK_PROLOG)
    environment = {**child.task.environment, "SLURM_SCRIPT_CONTEXT": "prolog_task"}
    status, output = scripts.run(path, environment, confinement=child.confinement)
    child.end_row(launch_order.TASK_PROLOG, started, status, path)
    os.write(1, scripts.apply_prolog(output, child.task.environment))
    if status != 0:
        raise TaskEnds(f"task prolog {path!r} ended with status {status}{_NOT_FOUND if status == 127 else ''}", status)


def lock_files(child: Child) -> "Iterator[Piece]":
    """Do the rest of `confine`, if still to be done: not earlier, because a prolog may set TMPDIR."""
    if not child.context.spank.has(launch_order.SPANK_TASK_INIT):
        yield from child.confinement.locks()


def set_io_priority(child: Child) -> "Iterator[Piece]":
    """Set the priority of input and output, if the user asked for one."""
    if child.step.io_priority >= 0:
        yield operations.io_priority(child.step.io_priority)


def set_soft_limits(child: Child) -> "Iterator[Piece]":
    """Set the user's soft limits, late, so nothing of nodectl runs under them."""
    yield from rlimits.soft_limits(child.step.rlimits)


def execute(child: Child) -> "Iterator[Piece]":
    """Execute the program. Only the gate and the descriptors for reporting a failure are still open."""
    argv, environment = child.task.argv, child.task.environment
    words = child.context.common_words
    if not argv:
        yield operations.fail("no program to execute", _MISSING_ARGUMENTS)
        return
    passed = [child.task.mpi_fd] if child.task.mpi_fd >= 0 else []
    if child.task.hand_over is not None:
        passed += child.task.hand_over.fds
        argv = [*child.task.hand_over.words, *argv]
    yield operations.close_others((child.report, child.recorder.fd, child.gate, *passed))
    for fd in passed:
        yield operations.inherit(fd)
    try:
        yield from (*words.environment(environment), words.argv(argv), child.row(launch_order.EXEC))
        yield words.execution(
            argv[0], environment.get("PATH"), lambda name, path: execution(name, path, child.step.cwd, child.as_user)
        )
    except ValueError:
        yield operations.fail(f"execute {argv[0]!r}: Invalid argument{child.as_user}", BAD_ARGUMENTS)


def program(argv: list[str], environment: dict[str, str]) -> "list[Operation]":
    """Return the operations for executing a program like execvpe(3). Raises ValueError."""
    executing = execution(argv[0], environment.get("PATH"), "", "")
    return [operations.environment(environment), operations.argv(argv), executing]


def execution(name: str, path: "str | None", own: str, behind: str) -> "Operation":
    """Return the operation for executing `name`. Raises ValueError.

    A name with a slash is a path. A name that is in no directory of PATH is looked for in `own`: as srun, at last in
    the working directory that was asked for, even if it could not be entered.
    """
    candidates = _candidates(name, "/usr/bin:/bin" if path is None else path, own)
    return operations.execute(candidates, is_path="/" in name, what=f"execute {name!r}: ", behind=behind)


def _candidates(name: str, path: str, own: str) -> list[str]:
    """Return the paths at which to look for a program.

    A user may give a name and a PATH of 128 KiB each, and the paths made of both would fill the machine's memory. So a
    name that no file can have is left to the kernel to refuse, and only the first of many directories are searched.
    Tasks with names of their own have such a list each.
    """
    if "/" in name or len(name) > _LONGEST_NAME:
        return [name]
    found = []
    room = _MOST_CANDIDATES
    for directory in dict.fromkeys(path.split(":")):
        room -= len(directory) + len(name) + 2
        if room < 0:
            break
        found.append(f"{directory or '.'}/{name}")
    return [*found, f"{own}/{name}"] if own else found


SEQUENCE = (
    join_process_group,
    leave_stepd,
    set_hard_limits,
    pre_launch_priv,
    join_container,
    task_init_privileged,
    drop_privileges,
    die_with_stepd,
    connect_streams,
    enter_directory,
    wait_at_gate,
    default_signals,
    make_tmpdir,
    confine,
    pre_launch,
    task_init,
    task_prologs,
    lock_files,
    set_io_priority,
    set_soft_limits,
    execute,
)
# The values of a task that a stage looks at: where they are equal it yields the same for two tasks, because all else is
# the step's, and the same to its end. Stages that are not here change something themselves, or look at too much.
LOOKS_AT: "Mapping[Callable[[Child], Iterator[Piece]], Callable[[Child], object]]" = {
    **dict.fromkeys(
        (
            set_hard_limits, task_init_privileged, drop_privileges, die_with_stepd, default_signals, confine, task_init,
            task_prologs, set_io_priority, set_soft_limits,
        ),
        lambda _: None,
    ),
    leave_stepd: lambda child: child.stepd_fds,
    pre_launch_priv: lambda child: child.answers,
    connect_streams: lambda child: (
        child.context.streams.tasks[child.task.local_id], child.has_terminal, child.step.umask,
    ),
    enter_directory: lambda child: (child.task.number, child.step.cwd),
    wait_at_gate: lambda child: child.gate,
}  # fmt: skip
