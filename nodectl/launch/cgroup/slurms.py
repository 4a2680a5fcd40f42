"""The cgroups of Slurm's jobs (cgroup v2), and the cgroups of our steps within these jobs.

    <scope>/job_J/step_X/slurm           slurmstepd
    <scope>/job_J/step_X/user/task_T     the programs of Slurm's step
    <scope>/job_J/step_X/user/nodectl/step_S/...     ours: `cgroup/tree.py`
    <scope>/job_J/step_X/nodectl_S       its stepd

A cgroup that has processes gives no controller to those below it, so ours are not below task_T, but beside it: `user`
has none, and the limits of Slurm's step are on it. Slurm freezes `user`, and may kill all that is in it; so the stepd
is beside that, where the job's limits are, as slurmstepd is. Slurm does not know these directories: it cannot remove
its own cgroups at its step's end while ours are there. So the process that removes ours removes what Slurm left.
"""

import fcntl
import os

from nodectl.kernel import pseudo_file
from nodectl.launch.cgroup import tree
from nodectl.model.step_number import step_word

BEYOND_SLURMS = 1 << 26  # the first number that no job of Slurm's has, unless it is of a federation
_OURS = "nodectl"
_USER, _RUNNER = "user", "slurm"
_JOB, _STEP, _TASK = "job_", "step_", "task_"
_LONGEST_NUMBER = 9  # digits; Slurm gives no higher ones
_LEVELS = 4  # job, step, user, task


def place_of(cgroup: str, scope: str) -> "tuple[int, str] | None":
    """Return the Slurm job's number and the path of the step's `user`, for the cgroup of a process; or None.

    None is for a process of no Slurm job. Only names in their places count: what users make below Slurm's cgroups is
    not looked at.
    """
    if not cgroup.startswith(f"{scope}/"):
        return None
    names = cgroup[len(scope) + 1 :].split("/")[:_LEVELS]
    if len(names) < _LEVELS:
        return None
    job, step, user, task = names
    number = job.removeprefix(_JOB)
    is_slurms = job.startswith(_JOB) and step.startswith(_STEP) and user == _USER and task.startswith(_TASK)
    is_number = number.isascii() and number.isdecimal() and len(number) <= _LONGEST_NUMBER and number[0] != "0"
    return (int(number), f"{scope}/{job}/{step}/{user}") if is_slurms and is_number else None


def step_path(place: str, step: int) -> str:
    """Return the path of our step in this place."""
    return f"{place}/{_OURS}/{_STEP}{step_word(step)}"


def is_within(step: str) -> bool:
    """Return True for the path of a step of ours within Slurm's job, and False for a step in a job of ours."""
    return step.split("/")[-3:-1] == [_USER, _OURS]


def is_of_step(place: str) -> bool:
    """Return True for the cgroup of a step of ours within Slurm's job and for all cgroups below."""
    return f"/{_USER}/{_OURS}/{_STEP}" in place


def stepd_path(step: str) -> str:
    """Return the path of the cgroup of the stepd, for any step of ours."""
    if not is_within(step):
        return f"{step}/stepd"
    user, word = os.path.dirname(os.path.dirname(step)), os.path.basename(step).removeprefix(_STEP)
    return f"{os.path.dirname(user)}/{_OURS}_{word}"


def steps_below(scope: str) -> set[str]:
    """Return the full paths of all steps of ours in Slurm's jobs, also of steps with only the stepd's cgroup left.

    Where a place of ours is empty, the path of a step that does not exist stands for it. `scope` is the full path of
    Slurm's.
    """
    found: set[str] = set()
    for job in _below(scope, _JOB):
        for step in _below(job, _STEP):
            ours = f"{step}/{_USER}/{_OURS}"
            found.update(_below(ours, _STEP) or ([f"{ours}/{_STEP}"] if tree.Group(ours).exists() else []))
            found.update(f"{ours}/{_STEP}{stepd.rpartition('_')[2]}" for stepd in _below(step, f"{_OURS}_"))
    return found


def _below(directory: str, prefix: str) -> list[str]:
    try:
        return [entry.path for entry in os.scandir(directory) if entry.name.startswith(prefix) and entry.is_dir()]
    except OSError:
        return []  # it has gone


def remove(step: tree.Group, *, patient: bool = True) -> bool:
    """Remove our step's cgroups, which have no process any more, and Slurm's cgroups left by Slurm.

    Returns False where some of ours are left, or, if the caller is `patient`, where another process holds Slurm's lock:
    try again then. An impatient caller leaves Slurm's cgroups to Slurm.
    """
    for name in ("stepd", "epilog", _USER):
        step.child(name).remove()
    if not step.remove():
        return False
    ours, stepd = tree.Group(os.path.dirname(step.full_path)), tree.Group(stepd_path(step.full_path))
    was_there = ours.exists() or stepd.exists()
    # Slurm's leftovers go with the last of our cgroups; where there was none of ours, nothing of Slurm's goes.
    if ours.remove() and was_there and not _remove_above(ours, stepd) and patient:
        return False
    return stepd.remove()


def _remove_above(ours: tree.Group, stepd: tree.Group) -> bool:
    """Remove the cgroups left by Slurm, which leaves a cgroup with a cgroup of ours inside.

    Returns False where they could not be looked at, mostly because another process holds the lock. A step whose
    slurmstepd or tasks are there is not over. The kernel refuses the removal of anything that is in use. The stepd's
    cgroup goes late: as long as it is there this is done again.
    """
    user = tree.Group(os.path.dirname(ours.full_path))
    step = tree.Group(os.path.dirname(user.full_path))
    job = tree.Group(os.path.dirname(step.full_path))
    slurmstepds = step.child(_RUNNER)
    try:
        fd = pseudo_file.open_at(os.path.dirname(job.full_path), os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return True  # all is gone
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # as slurmstepd, which makes and removes these directories
        if not slurmstepds.populated() and user.remove():
            slurmstepds.remove()
            stepd.remove()
            if step.remove():
                job.remove()
    except OSError:  # another process has the lock, or a directory went as it was read
        return False
    finally:
        os.close(fd)
    return True
