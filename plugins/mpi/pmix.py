"""mpi/pmix: PMIx, which Open MPI speaks, by OpenPMIx's own library.

The step's server (`nodectl/mpi/pmix_server.py`), which runs as the user, opens the library; without the library the
step is refused, and the message names the missing file.
"""

from nodectl.mpi import own_server

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nodectl.model.step import Step, Task

plugin_type = "mpi/pmix"
plugin_name = "PMIx"
plugin_version = (22, 5, 8)

# Open MPI's tasks then ask for data that was not collected. The library does not find such data in the shared memory
# of the tasks of one node, at least in release 4.2.
_ASYNCHRONOUS = "OMPI_MCA_pmix_base_async_modex"
_STORE = "PMIX_MCA_gds"
_NO = ("", "0", "false", "no", "disabled")


def mpi_p_slurmstepd_prefork(step: "Step") -> None:
    """Set the step's MPI server: a PMIx server. The tasks start after the server has sent the common variables."""
    step.mpi_server = own_server("pmix_server", announces=True)


def mpi_p_slurmstepd_task(step: "Step", task: "Task") -> None:
    """Set the task's rank; the server sets the variables common to all tasks."""
    task.environment["PMIX_RANK"] = str(task.global_id)
    if task.environment.get(_ASYNCHRONOUS, "").lower() not in _NO:
        task.environment.setdefault(_STORE, "hash")
