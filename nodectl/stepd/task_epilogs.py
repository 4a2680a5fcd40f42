"""Runs the scripts after a task, as the user: first the user's --task-epilog, with a limit, then the site's TaskEpilog.

Runs in the stepd, as root, which waits for each script. Their cgroup is `step_S/epilog`. There they have the job's
limits and the task's device rules, but are not frozen when the step is suspended, because the stepd waits for them.
Processes that they leave are killed. A step that is not to outlive who asked for it runs none when that has ended:
what it holds is another's by then.
"""

import os
import select

from nodectl import messages
from nodectl.confine import scripts
from nodectl.confine.confinement import Confinement
from nodectl.kernel import _kernel, children, pseudo_file
from nodectl.model.launch_order import ROWS
from nodectl.task import rlimits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nodectl.cgroup.tree import Group
    from nodectl.model.step import Task
    from nodectl.stepd.run import Run


def run_all(run: "Run", task: "Task") -> None:
    """Row 13's scripts. Where their cgroup cannot be made they do not run, which is logged."""
    step = run.step
    if not step.task_epilogs or _owner_has_ended(run):
        return
    try:
        cgroup = _make_cgroup(run)
    except OSError as error:
        messages.error(f"step {step}: task epilogs: confine them: {error.strerror}")
        return
    for path, limit in step.task_epilogs:
        started = run.enter("task_epilog")
        environment = {**task.environment, "SLURM_SCRIPT_CONTEXT": "epilog_task"}
        try:
            status, late = scripts.run_as(
                step.identity, path, environment, step.cwd, timeout=limit or None, enter=lambda: _prepare(run, cgroup),
                confinement=Confinement(step, environment), until=run.fds.lifeline,
            )  # fmt: skip
            why = children.said(status) if status else ""
            if late and why:
                why = f"had not ended after {limit:g} s and was killed"
            code = os.waitstatus_to_exitcode(status)
        except OSError as error:  # the job may have all the processes that it may have
            why, code = str(error.strerror), error.errno or 1
        if _owner_has_ended(run):
            break
        if why:
            messages.error(f"step {step}: task {task.number}: task epilog {path!r}: {why}")
        run.recorder.write(ROWS["task_epilog"], started, task=task.number, rc=code if code >= 0 else 1, note=path)
    if cgroup is not None:
        cgroup.kill_all()


def _owner_has_ended(run: "Run") -> bool:
    if run.fds.lifeline < 0:
        return False
    poll = select.poll()
    poll.register(run.fds.lifeline, select.POLLIN)
    return bool(poll.poll(0))


def _make_cgroup(run: "Run") -> "Group | None":
    """None without cgroups. Raises OSError."""
    if run.group is None:
        return None
    cgroup = run.group.child("epilog").make()
    if run.step.device_rules:
        fd = cgroup.open()
        try:
            if not _kernel.device_programs(fd):
                _kernel.constrain_devices(fd, run.step.device_rules)
        finally:
            os.close(fd)
    return cgroup


def _prepare(run: "Run", cgroup: "Group | None") -> bool:
    """In the script's process, as root: enters the cgroup and the job's container. False where it cannot."""
    if cgroup is not None:
        cgroup.add(0)
    if _kernel.capabilities()[0] & rlimits.CAP_SYS_RESOURCE:
        pseudo_file.write("/proc/self/oom_score_adj", b"0")
    rlimits.set_hard(run.step.hard_limits)
    return run.enter_container()
