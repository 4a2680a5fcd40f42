"""mpi/pmi2: PMI-1 and PMI-2, which MPICH and its relatives speak over the descriptor PMI_FD.

The server (`nodectl/mpi/pmi_server.py`) answers each task in the version in which it asks.
"""

from nodectl.mpi import own_server

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nodectl.model.step import Step, Task

plugin_type = "mpi/pmi2"
plugin_name = "PMI-1 and PMI-2"
plugin_version = (22, 5, 8)


def mpi_p_slurmstepd_prefork(step: "Step") -> None:
    """Start PMI's server for the step, with a socket for each task."""
    step.mpi_server = own_server("pmi_server", connected=True)


def mpi_p_slurmstepd_task(step: "Step", task: "Task") -> None:
    """Set the variables by which the task's program finds the server."""
    task.environment.update(
        PMI_FD=str(task.mpi_fd),
        PMI_RANK=str(task.global_id),
        PMI_SIZE=str(step.total_tasks),
        PMI_JOBID=str(step),
    )
