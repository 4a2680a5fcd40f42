"""Job containers: what a job_container plugin is told of its jobs, and what the built-in ones are made of.

The interface's functions are given a job's number and nothing else. Whoever calls them, a stepd or an errand of the
forkserver's, has said before which step it means.
"""

import errno

from nodectl.plugin_api import PluginError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nodectl.model.step import Step


NONE, NAMESPACE = "job_container/none", "job_container/namespace"  # the built-in plugins


def plugin_of(step: "Step") -> str:
    """The type of the plugin that makes, or has made, the container of the step's job."""
    return str(step.container.get("type", NONE))


class Job:
    """`step` is the job's step on whose behalf a function is called; `spec` the path of its file, which is there from
    before the container is made until the container is deleted: whose owner's file has gone is nobody's.
    """

    __slots__ = ("spec", "step")

    def __init__(self, step: "Step", spec: str) -> None:
        self.step = step
        self.spec = spec


_jobs: dict[int, Job] = {}
_bases: list[str] = []


def introduce(step: "Step", spec: str) -> None:
    """From now on this process's plugin may ask for the step's job."""
    _jobs[step.job_id] = Job(step, spec)


def job(job_id: int) -> Job:
    """The job that a function was called for. Raises PluginError for a number of which this process was not told."""
    if job_id not in _jobs:
        raise PluginError(errno.ESRCH, f"job {job_id} is not known here")
    return _jobs[job_id]


def introduce_base(path: str) -> None:
    """From now on this process's plugin knows where the containers of this node lie."""
    _bases.append(path)


def bases() -> list[str]:
    """Where containers of this node may lie: for container_p_restore."""
    return _bases
