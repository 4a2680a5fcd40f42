"""Job containers: the parts of the built-in plugins, and the facts of a job given to a job_container plugin.

Runs as root in a stepd, in tasks, and in the processes that the forkserver forks for container requests; in a user's
own node as that user. It may import the packages below it: kernel, wire, model, config, cgroup, confine.

A job_container plugin's functions are given a job's number and nothing else. So the process that calls them introduces
the step first.
"""

import errno

from nodectl.plugin_api import PluginError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nodectl.model.step import Step


NONE, NAMESPACE, USER = "job_container/none", "job_container/namespace", "job_container/user"  # the built-in plugins
GROUP = "container"  # the cgroup of a job's first process (`pid1.py`), beside its steps'
LOCK = ".lock"  # the file beside the containers (`job_dir.py`), which stays


class ContainedJob:
    """A job for which a plugin's function is called.

    `step` is the job's step for which it is called, `spec` the path of the step's file. The file exists before the
    container is made and until it is deleted: a container whose file is gone has no owner.
    """

    __slots__ = ("spec", "step")

    def __init__(self, step: "Step", spec: str) -> None:
        self.step = step
        self.spec = spec


_jobs: dict[int, ContainedJob] = {}
_bases: list[str] = []


def introduce(step: "Step", spec: str) -> None:
    """Make a step's job known to the plugins in this process."""
    _jobs[step.job_id] = ContainedJob(step, spec)


def forget(job_id: int) -> None:
    """Forget a job, which no plugin in this process asks for any more."""
    _jobs.pop(job_id, None)


def job(job_id: int) -> ContainedJob:
    """Return the job for which a function was called. Raises PluginError for a job not introduced."""
    if job_id not in _jobs:
        raise PluginError(errno.ESRCH, f"job {job_id} is not known here")
    return _jobs[job_id]


def introduce_base(path: str) -> None:
    """Make the place of this node's containers known to the plugins in this process."""
    _bases.append(path)


def bases() -> list[str]:
    """Return the places of this node's containers, for container_p_restore."""
    return _bases
