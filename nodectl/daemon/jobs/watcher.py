"""Who is told what becomes of jobs: the part of the daemon that keeps the queue.

All calls come from the event loop, about jobs by their numbers.
"""

from collections.abc import Mapping


class Watcher:
    """One that does nothing, for a node without a queue; the queue's own has the same methods."""

    def job_ending(self, job: int) -> None:
        """The end of the job begins: its first step has ended, other processes of it may still run. The watcher may
        have begun it itself.
        """

    def job_over(self, job: int, record: Mapping[str, object]) -> None:
        """Nothing of the job runs, its epilog has ended and its resources are released. `record` is its first step's.
        A job that is started again after this has a higher `restart` in its steps.
        """

    def step_begins(self, job: int, step: int, ntasks: int) -> str:
        """A step of the job is about to be started. Returns what the step's file is to keep (`Step.select_packed`)."""
        del job, step, ntasks
        return ""

    def step_ending(self, job: int, step: int) -> None:
        """The step's processes are about to be killed."""

    def step_over(self, job: int, step: int) -> None:
        """Nothing of the step runs, or it was not started."""

    def job_suspended(self, job: int, *, by_owner: bool = False) -> str:
        """All steps of the job stand still; task plugins have been told. Returns why the job keeps its CPUs, which is
        logged too, "" where others may have them.
        """
        del job, by_owner
        return ""

    def job_resuming(self, job: int) -> str:
        """A step of a job that stands still, or soon will, is to run again. Returns why it cannot, "" where it may."""
        del job
        return ""
