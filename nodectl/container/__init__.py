"""Job containers: what a job_container plugin is told of its jobs, and what the built-in plugins are made of.

Runs as root in a stepd, in tasks, and in the processes that the forkserver forks for container requests; in a user's
own node as that user. It may import what stands below it: kernel, wire, model, config, cgroup, confine.

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


class Job:
    """`step` is the job's step for which a function is called, `spec` the path of its file. The file exists before the
    container is made and until it is deleted: a container whose file is gone belongs to nobody.
    """

    __slots__ = ("spec", "step")

    def __init__(self, step: "Step", spec: str) -> None:
        self.step = step
        self.spec = spec


_jobs: dict[int, Job] = {}
_bases: list[str] = []


def introduce(step: "Step", spec: str) -> None:
    """From now on a plugin in this process may ask for the step's job."""
    _jobs[step.job_id] = Job(step, spec)


def forget(job_id: int) -> None:
    """No plugin in this process asks for that job any more."""
    _jobs.pop(job_id, None)


def job(job_id: int) -> Job:
    """The job that a function was called for. Raises PluginError for a job that was not introduced."""
    if job_id not in _jobs:
        raise PluginError(errno.ESRCH, f"job {job_id} is not known here")
    return _jobs[job_id]


def introduce_base(path: str) -> None:
    """From now on a plugin in this process knows where the containers of this node are."""
    _bases.append(path)


def bases() -> list[str]:
    """Where containers of this node may be, for container_p_restore."""
    return _bases
