"""A task, from the fork to its program: one straight walk over SEQUENCE.

Runs in the task's own process; root until `become_user`, the user from there on. Nothing is looked up or imported
here: the step's user, environment, masks and streams were decided before the fork. A stage that fails ends the task:
the reason goes to the stepd through the report pipe, the status is the stage's.
"""

import _signal
import os

import prctl

from nodectl import messages
from nodectl.confine import scripts
from nodectl.confine.confinement import CannotConfine
from nodectl.kernel import _kernel, pseudo_file, user_path
from nodectl.kernel.closing import close_all_but
from nodectl.kernel.identity import become_user
from nodectl.model.confinement_level import NONE
from nodectl.model.launch_order import ROWS
from nodectl.task import client_streams, rlimits, tmpdir
from nodectl.task.child import Child, TaskEnds
from nodectl.task.stdio import CLIENT
from nodectl.wire import framing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

    from nodectl.task.stdio import Stream

# What a stepd does not die of: a terminal's signals, and what is meant for tasks.
IGNORED = (_signal.SIGINT, _signal.SIGHUP, _signal.SIGQUIT, _signal.SIGUSR1, _signal.SIGUSR2, _signal.SIGTSTP)
_MISSING_ARGUMENTS = 2
_LAST_HOOK = "slurm_spank_task_init"


def be_task(child: Child, cgroup: "str | None") -> "NoReturn":
    """Everything a task does; `cgroup` is the one that it was not born in. Never returns, whatever happens."""
    status = 1
    child.stepd = os.getppid()
    child.cgroup = cgroup
    try:
        messages.listen(child.say, level=child.step.verbose + messages.ERROR)
        messages.keep_through(child.log)
        for stage in SEQUENCE:
            stage(child)
    except TaskEnds as end:
        status = end.status
        if str(end):
            child.tell("failed", str(end))
    except CannotConfine as error:
        child.tell("failed", f"{error} (as {child.step.user_name})")
    except OSError as error:
        child.tell("failed", _words(child, error))
    except BaseException as error:  # the top of a process
        child.tell("failed", f"{type(error).__name__}: {error}")
    finally:
        os._exit(status)


def _words(child: Child, error: OSError) -> str:
    where = f" {error.filename!r}" if error.filename else ""
    return f"{error.strerror}{where} (as {child.step.user_name})"


def move(child: Child) -> None:
    """Where the kernel could not give birth in the cgroup: the task's first act is to go there."""
    if child.cgroup is not None:
        pseudo_file.write(f"{child.cgroup}/cgroup.procs", b"0")


def awake(child: Child) -> None:
    """From here on the step says whose process this is, and signals to its group do not reach the stepd."""
    child.task.pid = os.getpid()
    child.step.task = child.task
    if child.stepd == 0:
        return  # in a pid namespace of the job's: only the stepd, outside, knows the leader's number
    leader = child.step.process_group or child.context.tasks[0].pid
    try:
        os.setpgid(0, leader)
    except OSError:
        os.setpgid(0, 0)  # task 0 has ended, and its group with it


def shed(child: Child) -> None:
    """What the stepd has open for itself."""
    _signal.set_wakeup_fd(-1)
    for fd in child.stepd_fds:
        os.close(fd)
    if _kernel.capabilities()[0] & rlimits.CAP_SYS_RESOURCE:  # without it the stepd has not lowered its own
        pseudo_file.write("/proc/self/oom_score_adj", b"0")


def hold_limits(child: Child) -> None:
    """The hard limits are the node's; a plugin of root's may change them yet, and nobody else."""
    rlimits.change(child.hard_limits)


def pre_launch_priv(child: Child) -> None:
    """Task plugins, as root: binding."""
    child.require(child.context.node.call(child.caller, "task_p_pre_launch_priv", (child.step,)))


def join_container(child: Child) -> None:
    """What is opened by its name from here on is the container's."""
    if child.placement is not None:
        child.placement.wait(child.context.progress, child.slot)
    step = child.step
    child.require(child.context.node.call(child.caller, "container_p_add_pid", (step.job_id, os.getpid(), step.uid)))


def task_init_privileged(child: Child) -> None:
    """SPANK plugins, as root."""
    child.context.spank.through(child.caller)
    child.require(child.context.spank.call("slurm_spank_task_init_privileged", child.task))


def become(child: Child) -> None:
    """The last acts of root in this process."""
    started = child.row("become_user")
    child.confinement.limit_capabilities()
    become_user(child.step.identity)
    pseudo_file.let_go()  # root's hooks, which may have wanted it, are over
    child.wrote("become_user", started)


def die_with_stepd(child: Child) -> None:
    """Where no cgroup tells whose the step's processes are, a task must not outlive its stepd.

    PR_SET_PDEATHSIG is cleared by a change of user id, so only now.
    """
    if child.context.group is None:
        prctl.set_pdeathsig(_signal.SIGKILL)
        if os.getppid() != child.stepd:
            os._exit(1)


def wire_streams(child: Child) -> None:
    """0, 1 and 2, opened as the user where they are files."""
    streams = child.context.streams.tasks[child.task.local_id]
    clients = _clients_streams(child, streams)
    for stream in streams:
        try:
            stream.wire(child.step.umask, clients)
        except OSError as error:
            name = ("input", "output", "error")[stream.number]
            raise TaskEnds(f"open {name} file {stream.path!r}: {error.strerror} (as {child.step.user_name})") from None
    framing.close(clients)


def _clients_streams(child: Child, streams: "list[Stream]") -> "Sequence[int]":
    """Copies of the client's streams, if needed. They may hang: no process that others wait for has them."""
    waiting = child.context.client_streams
    if waiting < 0:
        return ()
    try:
        wanted = any(stream.fd in CLIENT for stream in streams)
        return client_streams.take(waiting, stay=child.context.streams.takers > 1) if wanted else ()
    except OSError as error:
        raise TaskEnds(f"take the streams of the client: {error.strerror}") from None
    finally:
        os.close(waiting)


def enter_directory(child: Child) -> None:
    """The step's directory; where the user cannot enter it, /tmp and a word, as with Slurm."""
    os.umask(child.step.umask)
    try:
        user_path.go_to(child.step.cwd)
    except OSError as error:
        messages.error(
            f"step {child.step} task {child.task.local_id}: enter working directory {child.step.cwd!r}: "
            f"{error.strerror} (as {child.step.user_name}): going to /tmp instead"
        )
        os.chdir("/tmp")  # where Slurm goes


def wait_at_gate(child: Child) -> None:
    """Until every task of the step is forked, contained and announced. The end of the pipe: there will be no launch."""
    started = child.row("gate")
    if not os.read(child.gate, 1):
        os._exit(1)
    os.close(child.gate)
    child.wrote("gate", started)


def default_signals(_: Child) -> None:
    """Nothing ignored, nothing blocked: a program starts as from a login shell.

    Before the user's hooks, because a plugin may execute a program of its own from there.
    """
    # Python ignores SIGPIPE and SIGXFSZ by itself; SIGTERM and SIGCHLD are the stepd's.
    for number in (*IGNORED, _signal.SIGPIPE, _signal.SIGXFSZ, _signal.SIGTERM, _signal.SIGCHLD):
        _signal.signal(number, _signal.SIG_DFL)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())


def temporary_directory(child: Child) -> None:
    """TMPDIR, before files are locked."""
    tmpdir.directory(child.task.environment, child.step.user_name)


def confine(child: Child) -> None:
    """What nothing of the user's may do, by the step's level. Before the user's hooks, each of which may execute a
    program: whatever the task becomes, and whoever made it so, it is confined.
    """
    if child.step.secure == NONE:
        return
    started = child.row("confine")
    child.confinement.deny_calls()
    if child.context.spank.has(_LAST_HOOK):
        child.confinement.lock_files()
    child.wrote("confine", started)


def pre_launch(child: Child) -> None:
    """Task plugins, as the user."""
    child.task.environment["SLURM_TASK_PID"] = str(os.getpid())
    child.require(child.context.node.call(child.caller, "task_p_pre_launch", (child.step,)))


def task_init(child: Child) -> None:
    """SPANK plugins, as the user."""
    pid = os.getpid()
    child.require(child.context.spank.call(_LAST_HOOK, child.task))
    if os.getpid() != pid and child.context.group is None:
        prctl.set_pdeathsig(_signal.SIGKILL)  # the plugin's child is the task now, and its parent waits for it


def task_prologs(child: Child) -> None:
    """The site's script, then the user's; what they export is the task's."""
    for path in child.step.task_prologs:
        started = child.row("task_prolog")
        environment = {**child.task.environment, "SLURM_SCRIPT_CONTEXT": "prolog_task"}
        status, output = scripts.run(path, environment, confinement=child.confinement)
        child.wrote("task_prolog", started, status, path)
        os.write(1, scripts.obey(output, child.task.environment))
        if status != 0:
            raise TaskEnds(f"task prolog {path!r} ended with status {status}", status)


def limits(child: Child) -> None:
    """The user's soft limits, last, so that nothing of ours runs under them."""
    rlimits.soften(child.step.rlimits)


def lock_files(child: Child) -> None:
    """The rest of `confine`, where that left it: a site's prolog may have said where TMPDIR is."""
    child.confinement.lock_files()


def execute(child: Child) -> None:
    """The program. Nothing else is open but what a failure is told through, also where its path leads."""
    argv, environment = child.task.argv, child.task.environment
    if not argv:
        raise TaskEnds("no program to execute", _MISSING_ARGUMENTS)
    close_all_but((child.report, child.recorder.fd))
    started = child.row("exec")
    child.wrote("exec", started)
    child.context.progress.done(child.slot)
    # As srun: last, the working directory that was asked for, and not /tmp where that could not be entered.
    error = exec_along_path(argv, environment, child.step.cwd)
    child.context.progress.enter(child.slot, ROWS["exec"])
    child.wrote("exec", started, error.errno or 1, str(error.strerror))
    raise TaskEnds(f"execute {argv[0]!r}: {_why(argv[0], error)} (as {child.step.user_name})", error.errno or 1)


def exec_along_path(argv: list[str], environment: dict[str, str], own: str = "") -> OSError:
    """execvpe(3) by hand: returns the error that says most. A name with a slash is a path; what is in no directory of
    PATH is looked for in `own`.
    """
    name = argv[0]
    if "/" in name:
        candidates = [name]
    else:
        candidates = [f"{d or '.'}/{name}" for d in environment.get("PATH", "/usr/bin:/bin").split(":")]
        candidates += [f"{own}/{name}"] if own else []
    best = FileNotFoundError(2, "No such file or directory")
    for candidate in candidates:
        try:
            os.execve(candidate, argv, environment)
        except (FileNotFoundError, NotADirectoryError) as error:
            if "/" in name or os.path.exists(candidate):
                return error
        except PermissionError as error:
            best = error  # type: ignore[assignment]  # goes on: a later directory may have it
        except OSError as error:
            return error
        except ValueError as error:
            return OSError(22, str(error))
    return best


def _why(name: str, error: OSError) -> str:
    if isinstance(error, FileNotFoundError) and "/" in name and os.path.exists(name):
        return f"{error.strerror}: its interpreter is missing"
    if isinstance(error, PermissionError) and os.path.isdir(name):
        return f"{error.strerror}: it is a directory"
    return str(error.strerror)


SEQUENCE = (
    move,
    awake,
    shed,
    hold_limits,
    pre_launch_priv,
    join_container,
    task_init_privileged,
    become,
    die_with_stepd,
    wire_streams,
    enter_directory,
    wait_at_gate,
    default_signals,
    temporary_directory,
    confine,
    pre_launch,
    task_init,
    task_prologs,
    lock_files,
    limits,
    execute,
)
