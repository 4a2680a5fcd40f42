"""The interface for events of jobs: the jobs package calls the watcher, and the controller implements the interface.

All calls come from the event loop, about jobs by their numbers.
"""

from collections.abc import Mapping


class Watcher:
    """A Watcher without effect, for a node without a queue. The controller overrides the methods."""

    def job_ending(self, job: int) -> None:
        """Handle the start of a job's end: the first step has ended, further processes may still run.

        The watcher may have begun the end itself.
        """

    def job_over(self, job: int, record: Mapping[str, object]) -> None:
        """Handle the end of a job: no process runs, the epilog has ended and the resources are released.

        `record` is the record of the first step. If the job starts again later, its steps have a higher `restart`.
        """

    def step_begins(self, job: int, step: int, ntasks: int) -> str:
        """Handle a step about to start. Return the data for the step's file (`Step.select_packed`)."""
        return ""

    def step_ending(self, job: int, step: int) -> None:
        """Handle a step whose processes are about to be killed."""

    def step_over(self, job: int, step: int) -> None:
        """Handle the end of a step: all processes are gone, or the step was not started."""

    def job_suspended(self, job: int, *, by_owner: bool = False) -> str:
        """Handle the suspension of a job: all steps stand still, task plugins know. Return why the job keeps the CPUs.

        The reason is logged too; "" where other jobs may have the CPUs.
        """
        return ""

    def job_resuming(self, job: int) -> str:
        """Handle a step about to run again. Return why the step cannot, "" where allowed.

        The job of the step stands still, or soon will.
        """
        return ""
