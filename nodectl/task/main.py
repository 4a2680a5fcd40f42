"""A task, from the fork to its program: the stages of SEQUENCE, one after the other.

Runs in the task's own process; root until `become_user`, the user from there on. Nothing is looked up or imported
here: the step's user, environment, masks and streams were decided before the fork. A stage that fails ends the task:
the reason goes to the stepd through the report pipe, and the stage chooses the exit status.
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

# Signals that a stepd ignores: those of a terminal, and those meant for tasks.
IGNORED = (_signal.SIGINT, _signal.SIGHUP, _signal.SIGQUIT, _signal.SIGUSR1, _signal.SIGUSR2, _signal.SIGTSTP)
_MISSING_ARGUMENTS = 2
_LAST_HOOK = "slurm_spank_task_init"


def run_task(child: Child, cgroup: "str | None") -> "NoReturn":
    """Everything a task does; `cgroup` is the one to enter, None where it was forked into it. Never returns."""
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


def enter_cgroup(child: Child) -> None:
    """The task's first act, where the kernel could not fork it into its cgroup."""
    if child.cgroup is not None:
        pseudo_file.write(f"{child.cgroup}/cgroup.procs", b"0")


def join_process_group(child: Child) -> None:
    """From here on `step.task` is this task, and signals to its process group do not reach the stepd."""
    child.task.pid = os.getpid()
    child.step.task = child.task
    if child.stepd == 0:
        return  # in the job's pid namespace: only the stepd, outside, knows the leader's pid
    leader = child.step.process_group or child.context.tasks[0].pid
    try:
        os.setpgid(0, leader)
    except OSError:
        os.setpgid(0, 0)  # task 0 has ended, and its group too


def leave_stepd(child: Child) -> None:
    """Closes the stepd's own descriptors, and is no harder to kill than any process when memory runs out."""
    _signal.set_wakeup_fd(-1)
    for fd in child.stepd_fds:
        os.close(fd)
    if _kernel.capabilities()[0] & rlimits.CAP_SYS_RESOURCE:  # without it the stepd has not changed its own
        pseudo_file.write("/proc/self/oom_score_adj", b"0")


def set_hard_limits(child: Child) -> None:
    """The node's hard limits. After this only plugins that run as root may change them."""
    rlimits.change(child.hard_limits)


def pre_launch_priv(child: Child) -> None:
    """Calls the task plugins, as root: binding."""
    child.require(child.context.node.call(child.caller, "task_p_pre_launch_priv", (child.step,)))


def join_container(child: Child) -> None:
    """Joins the job's container: paths lead into it from here on."""
    if child.placement is not None:
        child.placement.wait(child.context.progress, child.slot)
    step = child.step
    child.require(child.context.node.call(child.caller, "container_p_add_pid", (step.job_id, os.getpid(), step.uid)))


def task_init_privileged(child: Child) -> None:
    """Calls the SPANK plugins, as root."""
    child.context.spank.through(child.caller)
    child.require(child.context.spank.call("slurm_spank_task_init_privileged", child.task))


def drop_privileges(child: Child) -> None:
    """Becomes the job's user, for good."""
    started = child.begin_row("become_user")
    child.confinement.limit_capabilities()
    become_user(child.step.identity)
    pseudo_file.let_go()  # only root's hooks may need it, and they are over
    child.end_row("become_user", started)


def die_with_stepd(child: Child) -> None:
    """Without a cgroup nothing else shows which processes are the step's: so a task must not outlive its stepd.

    Not earlier: a change of the user ID clears PR_SET_PDEATHSIG.
    """
    if child.context.group is None:
        prctl.set_pdeathsig(_signal.SIGKILL)
        if os.getppid() != child.stepd:
            os._exit(1)


def connect_streams(child: Child) -> None:
    """Opens descriptors 0, 1 and 2, files as the user."""
    streams = child.context.streams.tasks[child.task.local_id]
    clients = _clients_streams(child, streams)
    for stream in streams:
        try:
            stream.connect(child.step.umask, clients)
        except OSError as error:
            name = ("input", "output", "error")[stream.number]
            raise TaskEnds(f"open {name} file {stream.path!r}: {error.strerror} (as {child.step.user_name})") from None
    framing.close(clients)


def _clients_streams(child: Child, streams: "list[Stream]") -> "Sequence[int]":
    """Copies of the client's streams, if needed. Any use of them may hang, so that the stepd never has them."""
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
    """Enters the step's directory; where the user cannot, /tmp, with a message, as with Slurm."""
    os.umask(child.step.umask)
    try:
        user_path.go_to(child.step.cwd)
    except OSError as error:
        messages.error(
            f"step {child.step} task {child.task.local_id}: enter working directory {child.step.cwd!r}: "
            f"{error.strerror} (as {child.step.user_name}): going to /tmp instead"
        )
        os.chdir("/tmp")  # as with Slurm


def wait_at_gate(child: Child) -> None:
    """Waits until all tasks of the step are forked and tracked. The end of the pipe means that there is no launch."""
    started = child.begin_row("gate")
    if not os.read(child.gate, 1):
        os._exit(1)
    os.close(child.gate)
    child.end_row("gate", started)


def default_signals(_: Child) -> None:
    """Ignores and blocks no signal: a program starts as from a login shell.

    Before the user's hooks, because a plugin may execute a program in one.
    """
    # Python ignores SIGPIPE and SIGXFSZ; the stepd has handlers for SIGTERM and SIGCHLD.
    for number in (*IGNORED, _signal.SIGPIPE, _signal.SIGXFSZ, _signal.SIGTERM, _signal.SIGCHLD):
        _signal.signal(number, _signal.SIG_DFL)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())


def make_tmpdir(child: Child) -> None:
    """Makes TMPDIR, before `lock_files`."""
    tmpdir.directory(child.task.environment, child.step.user_name)


def confine(child: Child) -> None:
    """Denies what the step's level denies. Before the user's hooks, each of which may execute a program: whatever the
    task becomes, it is confined.
    """
    if child.step.secure == NONE:
        return
    started = child.begin_row("confine")
    child.confinement.deny_calls()
    if child.context.spank.has(_LAST_HOOK):
        child.confinement.lock_files()
    child.end_row("confine", started)


def pre_launch(child: Child) -> None:
    """Calls the task plugins, as the user."""
    child.task.environment["SLURM_TASK_PID"] = str(os.getpid())
    child.require(child.context.node.call(child.caller, "task_p_pre_launch", (child.step,)))


def task_init(child: Child) -> None:
    """Calls the SPANK plugins, as the user."""
    pid = os.getpid()
    child.require(child.context.spank.call(_LAST_HOOK, child.task))
    if os.getpid() != pid and child.context.group is None:
        prctl.set_pdeathsig(_signal.SIGKILL)  # the plugin has forked: its child is the task now


def task_prologs(child: Child) -> None:
    """Runs the site's script, then the user's. Both may change the task's environment."""
    for path in child.step.task_prologs:
        started = child.begin_row("task_prolog")
        environment = {**child.task.environment, "SLURM_SCRIPT_CONTEXT": "prolog_task"}
        status, output = scripts.run(path, environment, confinement=child.confinement)
        child.end_row("task_prolog", started, status, path)
        os.write(1, scripts.apply_prolog(output, child.task.environment))
        if status != 0:
            raise TaskEnds(f"task prolog {path!r} ended with status {status}", status)


def set_soft_limits(child: Child) -> None:
    """The user's soft limits, late, so that nothing of nodectl runs under them."""
    rlimits.set_soft(child.step.rlimits)


def lock_files(child: Child) -> None:
    """The rest of `confine`, if it is still to be done: not earlier, because a prolog may set TMPDIR."""
    child.confinement.lock_files()


def execute(child: Child) -> None:
    """Executes the program. Only the descriptors that report a failure are still open."""
    argv, environment = child.task.argv, child.task.environment
    if not argv:
        raise TaskEnds("no program to execute", _MISSING_ARGUMENTS)
    close_all_but((child.report, child.recorder.fd))
    started = child.begin_row("exec")
    child.end_row("exec", started)
    child.context.progress.done(child.slot)
    # As srun: at last in the working directory that was asked for, even if it could not be entered.
    error = exec_along_path(argv, environment, child.step.cwd)
    child.context.progress.enter(child.slot, ROWS["exec"])
    child.end_row("exec", started, error.errno or 1, str(error.strerror))
    raise TaskEnds(f"execute {argv[0]!r}: {_why(argv[0], error)} (as {child.step.user_name})", error.errno or 1)


def exec_along_path(argv: list[str], environment: dict[str, str], own: str = "") -> OSError:
    """As execvpe(3), but returns the most useful error. A name with a slash is a path. A name that is in no directory
    of PATH is looked for in `own`.
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
            best = error  # type: ignore[assignment]  # a later directory may have it
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
    enter_cgroup,
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
    set_soft_limits,
    execute,
)
