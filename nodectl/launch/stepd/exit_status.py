"""The exit status of a step, as srun's: derived from the tasks' ends, in the stepd, when the step is over.

`nodectl run` exits with it.
"""

import os

from nodectl.kernel.children import said
from nodectl.model.states import COMPLETED, FAILED, OUT_OF_MEMORY, RUNNING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nodectl.launch.stepd.run import Run

_FAILURE = 1


def of_tasks(statuses: "list[int]") -> int:
    """Return an exit status for the wait statuses of all tasks; 0 for no tasks.

    A signal counts more than any exit code and is 128 + its number; the highest signal counts, or the highest code.
    """
    signals = [os.WTERMSIG(status) for status in statuses if os.WIFSIGNALED(status)]
    codes = [os.WEXITSTATUS(status) for status in statuses if os.WIFEXITED(status)]
    return 128 + max(signals) if signals else max(codes, default=0)


def of_step(run: "Run") -> int:
    """Return the exit status of an ended step, and settle the step's state and reason."""
    ended = [task.status for task in run.tasks if task.status is not None]
    status = of_tasks(ended)
    if run.end_reasons.reason:
        run.end_as(OUT_OF_MEMORY, run.end_reasons.reason)
        status = _FAILURE  # as srun's, whatever the tasks' statuses are
    if run.state == RUNNING:
        run.state = COMPLETED if status == 0 else FAILED
        run.reason = _reason(run, status)
        if run.state == COMPLETED and run.spoiled:
            run.state, run.reason, status = FAILED, run.spoiled, _FAILURE
    elif run.fatal and run.state == FAILED:
        status = _FAILURE  # whatever the statuses of the tasks that it ended
    elif run.state == COMPLETED:
        return 0  # an allocation that its client gave back
    elif status == 0 and (run.state == FAILED or not ended):
        status = _FAILURE  # the step never ran, or ended for a reason that no task's status tells
    return status


def _reason(run: "Run", status: int) -> str:
    if status == 0:
        return run.end_reasons.refused
    if run.bulk is not None:
        return run.bulk.reason()
    if run.failures:
        rank, why = min(run.failures.items())
        return f"task {rank}: {why}"
    why = next((f"task {task.number} {said(task.status)}" for task in run.tasks if task.status), "")
    return f"{why}; {run.end_reasons.refused}" if run.end_reasons.refused else why
