"""The start of a step's tasks, each up to the gate. Runs in the stepd, as root.

A task shares the stepd's memory until its program begins (`nodectl.launch.task.main.launch`), and costs only its system
calls. Where code has to be called in the task, the task is a fork.
"""

import os

from nodectl.kernel import _kernel, pseudo_file
from nodectl.launch.cgroup import tree
from nodectl.launch.confine.confinement import Confinement
from nodectl.launch.stepd.run import LaunchFailed
from nodectl.launch.stepd.user_helpers import act_as_user
from nodectl.launch.streams.stdio import TaskStreams
from nodectl.launch.task import environment, rlimits
from nodectl.launch.task.child import Child
from nodectl.launch.task.common_words import CommonWords
from nodectl.launch.task.main import launch, plan, prepare, run_task
from nodectl.model import launch_order

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nodectl.kernel.operations import Operation
    from nodectl.launch.stepd.reaper import Reaper
    from nodectl.launch.stepd.run import Run
    from nodectl.model.step import Step

# How an old kernel, or a container's seccomp filter, refuses clone3 with CLONE_INTO_CGROUP.
NO_CLONE_INTO_CGROUP = (1, 7, 22, 38, 95)  # EPERM, E2BIG, EINVAL, ENOSYS, EOPNOTSUPP
_NOT_DUMPABLE = b"0\n"  # /proc/sys/fs/suid_dumpable: else a change of ids makes memory dumpable for a moment


def confine_runner(run: "Run") -> None:
    """Confine the stepd before the first of several tasks, so the tasks are born confined.

    Several tasks follow in this step, or in later steps of a kept stepd. Only done where the stepd, as root, calls
    nothing but our own plugins from then on. A kept stepd still has to make a keyring for each step.
    """
    step = run.step
    several = step.bulk or step.ntasks > 1 or run.kept
    if not several or step.container or run.may_be_changed:
        return
    needs_calls = run.kept or (step.task_epilogs and step.device_rules)
    Confinement(step, {}).confine_runner(for_good=not needs_calls)


def start_tasks(run: "Run", reaper: "Reaper") -> None:
    """Start every task in a cgroup of the task, up to the gate. Raises LaunchFailed.

    Everything tasks need is made before the first task, and trackers get the tasks after the last one: after each fork
    every page that the stepd writes to is copied once more.
    """
    try:
        gate, run.gate_writer = os.pipe2(os.O_CLOEXEC)
        run.streams = TaskStreams(
            run.step, lambda act: act_as_user(run, reaper, act), has_client=run.fds.client is not None
        )
        run.progress.expect_takers(run.streams.takers)
    except OSError as error:
        raise run.failed(f"open the streams of {run.step.ntasks} tasks: {error.strerror}") from error
    try:
        _start_all(run, reaper, gate)
    except (OSError, LaunchFailed) as error:
        run.close_gate()
        _close_placements(run.children)
        os.close(gate)
        reaper.wait()
        if isinstance(error, LaunchFailed):
            raise
        raise run.failed(f"fork task {len([t for t in run.tasks if t.pid > 0])}: {error.strerror}") from error
    finally:
        run.mpi.tasks_have_begun()
        for task in run.tasks:
            run.preload.begun(task)
    _close_placements(run.children)
    os.close(gate)


def _start_all(run: "Run", reaper: "Reaper", gate: int) -> None:
    for task in run.tasks:
        run.preload.introduce(task)
    # May write a message, which may end a connection.
    common_arguments = (gate, reaper.report, run.descriptors(), rlimits.hard_limits(run.step.hard_limits))
    common = environment.for_tasks(run.step)
    run.common_words = CommonWords(common)
    run.common_stages = {}
    several = _programs(run.step) if run.step.programs else None
    for task in run.tasks:
        task.environment = environment.for_task(run.step, task, common)
        task.argv = list(run.step.argv) if several is None else several[task.number]
        child = Child(run, task, *common_arguments)
        run.mpi.introduce(child)
        run.children.append(child)
    forked = must_fork(run.step)
    user = None if run.group is None else run.group.child("user")
    with run.caller:
        for child in run.children:
            child.ask_plugins(run.caller)
    for child in run.children:
        group = None if user is None else user.child(f"task_{child.task.local_id}")
        wanted = None if forked else plan(child)
        start(run, child, group, wanted)
        forked = wanted is None or not run.may_share_memory  # if the first task has to call something, all have to
        reaper.expect(child.task)
    with run.caller:
        for child in run.children:
            task = child.task
            run.call(launch_order.PROCTRACK_ADD, run.step, task.pid, task=task)
            if child.placement is not None:
                child.placement.done()


def _programs(step: "Step") -> list[list[str]]:
    from nodectl.launch.task import programs  # few steps have several programs

    return programs.argv_of(step.programs, step.total_tasks)


def fork_beside(run: "Run", name: str) -> "tuple[int, str]":
    """Fork a child in the cgroup `user/NAME`. Returns the pid, and the cgroup's path if the child must still enter.

    The child's cgroup is stopped, limited and emptied with those of the tasks, because the step's user can make the
    child execute anything. Raises OSError.
    """
    if run.group is None:
        return run.spawn(), ""
    group = run.group.child("user").make().child(name).make()
    if run.may_fork_into_cgroup and not run.caller.threaded:
        fd = group.open()
        try:
            return _kernel.fork_into(fd), ""
        except OSError as error:
            if error.errno not in NO_CLONE_INTO_CGROUP:
                raise
            run.may_fork_into_cgroup = False
        finally:
            os.close(fd)
    return run.spawn(), group.full_path


def must_fork(step: "Step") -> bool:
    """Return True where no task may share the stepd's memory."""
    try:
        return step.always_fork or pseudo_file.read("/proc/sys/fs/suid_dumpable") != _NOT_DUMPABLE
    except OSError:
        return True  # a plugin has given the stepd another root, without a /proc: assume the worst


def _close_placements(children: "list[Child]") -> None:
    for child in children:
        if child.placement is not None:
            child.placement.close()


def start(run: "Run", child: Child, group: "tree.Group | None", wanted: "list[Operation] | None") -> None:
    """Start a task in this cgroup, which is made. Raises OSError.

    `wanted` are the operations of a task that shares the stepd's memory; None for a fork, which calls plugins.
    """
    task = child.task
    started = run.enter(launch_order.FORK)
    fd = -1 if group is None else group.make().open()
    try:
        if child.placement is not None:
            child.placement.prepare()
        if wanted is None or not run.may_share_memory or not _launched(run, child, wanted, fd):
            _fork(run, child, fd, None if group is None else group.full_path)
    finally:
        if fd >= 0:
            os.close(fd)
    if child.placement is not None:
        child.placement.forked()
    try:
        if not child.has_terminal:  # a terminal's task leads a session, and could not if it led a group
            os.setpgid(task.pid, run.step.process_group or child.context.tasks[0].pid)  # as the child does itself
    except (PermissionError, ProcessLookupError):
        pass  # it has ended already, or executes its program
    run.leave(launch_order.FORK, started, task=task.number)


def _launched(run: "Run", child: Child, wanted: "list[Operation]", fd: int) -> bool:
    """Start a task in shared memory. Returns False where the kernel, or the stepd's container, refuses this.

    After a refusal no task of the step asks the kernel again.
    """
    try:
        child.task.pid = launch(child, wanted, fd)
    except OSError as error:
        if error.errno not in NO_CLONE_INTO_CGROUP:
            raise
        run.may_share_memory = error.__cause__ is not None  # a plugin's operations were wrong: the kernel was not asked
        return False
    run.step.forked_into_cgroup = fd >= 0
    return True


def _fork(run: "Run", child: Child, fd: int, cgroup: "str | None") -> None:
    task = child.task
    prepare(child)
    try:
        # A plugin's thread may hold malloc's lock: only libc's fork handles that.
        born = fd >= 0 and run.may_fork_into_cgroup and not run.caller.threaded
        task.pid = _kernel.fork_into(fd) if born else run.spawn()
        run.step.forked_into_cgroup = born
    except OSError as error:
        if fd < 0 or error.errno not in NO_CLONE_INTO_CGROUP:
            raise
        run.may_fork_into_cgroup = run.step.forked_into_cgroup = False
        task.pid = run.spawn()
    if task.pid == 0:
        if fd >= 0:
            os.close(fd)
        run_task(child, None if run.step.forked_into_cgroup else cgroup)
    if cgroup is not None and not run.step.forked_into_cgroup:
        _move(task.pid, cgroup)  # before anything depends on where it is


def _move(pid: int, cgroup: str) -> None:
    try:
        tree.Group(cgroup).add(pid)
    except ProcessLookupError:
        pass  # it has ended already
