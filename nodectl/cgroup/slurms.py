"""The cgroups in which Slurm has its jobs' processes (cgroup v2), and those of our steps within them.

    <scope>/job_J/step_X/slurm           slurmstepd
    <scope>/job_J/step_X/user/task_T     what the step runs
    <scope>/job_J/step_X/user/nodectl/step_S/...     ours: `cgroup/tree.py`
    <scope>/job_J/step_X/nodectl_S       its stepd

A cgroup that has processes gives no controller to those below it, so ours are not below task_T, but beside it: `user`
has none, and the limits of Slurm's step are on it. Slurm freezes `user`, and may kill all that is in it; so the stepd
is beside that, where the job's limits are, as slurmstepd is. To Slurm these directories are unknown: what it removes at
its step's end it cannot remove while ours are there. So who removes ours removes what Slurm left.
"""

import fcntl
import os

from nodectl.cgroup import tree
from nodectl.kernel import pseudo_file
from nodectl.model.step_number import step_word

BEYOND_SLURMS = 1 << 26  # the first number that no job of Slurm's has, unless it is of a federation
_OURS = "nodectl"
_USER, _RUNNER = "user", "slurm"
_JOB, _STEP, _TASK = "job_", "step_", "task_"
_LONGEST_NUMBER = 9  # digits; Slurm gives no higher ones
_LEVELS = 4  # job, step, user, task


def place_of(cgroup: str, scope: str) -> "tuple[int, str] | None":
    """The number of the Slurm job that a process in this cgroup is of, and the path of its step's `user`; None where it
    is of none. Only names in their places count: what users make below Slurm's cgroups is not looked at.
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
    """The path of our step there."""
    return f"{place}/{_OURS}/{_STEP}{step_word(step)}"


def is_within(step: str) -> bool:
    """Whether this is the path of such a step of ours, and not of one in a job of ours."""
    ours = os.path.dirname(step)
    return os.path.basename(ours) == _OURS and os.path.basename(os.path.dirname(ours)) == _USER


def is_of_step(place: str) -> bool:
    """True for the cgroup of such a step of ours and for all below it."""
    return f"/{_USER}/{_OURS}/{_STEP}" in place


def stepd_path(step: str) -> str:
    """The path of the cgroup that the stepd of any step of ours is in."""
    if not is_within(step):
        return f"{step}/stepd"
    user, word = os.path.dirname(os.path.dirname(step)), os.path.basename(step).removeprefix(_STEP)
    return f"{os.path.dirname(user)}/{_OURS}_{word}"


def steps_below(scope: str) -> set[str]:
    """The full paths of all steps of ours in Slurm's jobs, also of those that have nothing but their stepd's cgroup;
    where a place of ours is empty, of a step that is none. `scope` is the full path of Slurm's.
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
    """Removes our step's cgroups, which have no process any more, and Slurm's if that has left them. False where
    something is left in ours, or, as long as the caller is `patient`, where somebody holds Slurm's lock: to be tried
    again. Else Slurm's are left to Slurm.
    """
    for name in ("stepd", "epilog", _USER):
        step.child(name).remove()
    if not step.remove():
        return False
    ours, stepd = tree.Group(os.path.dirname(step.full_path)), tree.Group(stepd_path(step.full_path))
    was_there = ours.exists() or stepd.exists()
    # With the last of ours what Slurm left goes, and where there was nothing of ours nothing of Slurm's does.
    if ours.remove() and was_there and not _remove_above(ours, stepd) and patient:
        return False
    return stepd.remove()


def _remove_above(ours: tree.Group, stepd: tree.Group) -> bool:
    """Removes what Slurm left of a step: it leaves its own where it finds ours in it. False where it could not be
    looked at, mostly as somebody holds the lock. A step whose slurmstepd or tasks are there is not over. All else is
    refused by the kernel while something is in it. The stepd's goes late: as long as it is there this is done again.
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
    except OSError:  # somebody has it; or a directory went as it was read
        return False
    finally:
        os.close(fd)
    return True
