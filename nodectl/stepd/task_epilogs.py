"""The scripts behind a task: the user's --task-epilog first, with a limit, then the site's TaskEpilog; as the user.

They run in `step_S/epilog`: on devices confined as tasks are, within the job's limits, but not frozen with what is
suspended, because the stepd waits for them. What they leave behind ends with them.
"""

import os

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
    """Row 13's scripts. Without a place that is confined they are not run, which is logged."""
    step = run.step
    if not step.task_epilogs:
        return
    try:
        place = _place(run)
    except OSError as error:
        messages.error(f"step {step}: task epilogs: confine them: {error.strerror}")
        return
    for path, limit in step.task_epilogs:
        started = run.enter("task_epilog")
        environment = {**task.environment, "SLURM_SCRIPT_CONTEXT": "epilog_task"}
        try:
            status, late = scripts.run_as(
                step.identity, path, environment, step.cwd, timeout=limit or None, enter=lambda: _enter(run, place),
                confinement=Confinement(step, environment),
            )  # fmt: skip
            why = children.said(status) if status else ""
            if late and why:
                why = f"had not ended after {limit:g} s and was killed"
            code = os.waitstatus_to_exitcode(status)
        except OSError as error:  # the job may have all the processes that it may have
            why, code = str(error.strerror), error.errno or 1
        if why:
            messages.error(f"step {step}: task {task.local_id}: task epilog {path!r}: {why}")
        run.recorder.write(ROWS["task_epilog"], started, task=task.local_id, rc=code if code >= 0 else 1, note=path)
    if place is not None:
        place.kill_all()


def _place(run: "Run") -> "Group | None":
    """None without cgroups. Raises OSError."""
    if run.group is None:
        return None
    place = run.group.child("epilog").make()
    if run.step.device_rules:
        fd = place.open()
        try:
            if not _kernel.device_programs(fd):
                _kernel.constrain_devices(fd, run.step.device_rules)
        finally:
            os.close(fd)
    return place


def _enter(run: "Run", place: "Group | None") -> bool:
    """In the script's process, root: it is no harder to kill than a task. False when there is no way in."""
    if place is not None:
        place.add(0)
    if _kernel.capabilities()[0] & rlimits.CAP_SYS_RESOURCE:
        pseudo_file.write("/proc/self/oom_score_adj", b"0")
    rlimits.hold(run.step.hard_limits)
    return run.enter_container()
