"""mpi/pmix: PMIx, which Open MPI speaks, by OpenPMIx's own library.

The library is opened by the step's server (`nodectl/mpi/pmix_server.py`), which runs as the user; where there is none,
the step is refused by the name of what is missing.
"""

from nodectl.mpi import own_server

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nodectl.model.step import Step, Task

plugin_type = "mpi/pmix"
plugin_name = "PMIx"
plugin_version = (22, 5, 8)

# Open MPI's tasks then ask for what nothing has collected. The library does not find that in what it keeps for those of
# one node in shared memory, at least in release 4.2.
_ASYNCHRONOUS = "OMPI_MCA_pmix_base_async_modex"
_STORE = "PMIX_MCA_gds"
_NO = ("", "0", "false", "no", "disabled")


def mpi_p_slurmstepd_prefork(step: "Step") -> None:
    """Start PMIx's server for the step; the tasks start when the server has sent their variables."""
    step.mpi_server = own_server("pmix_server", announces=True)


def mpi_p_slurmstepd_task(step: "Step", task: "Task") -> None:
    """Set the task's rank; the server sets the variables common to all tasks."""
    task.environment["PMIX_RANK"] = str(task.global_id)
    if task.environment.get(_ASYNCHRONOUS, "").lower() not in _NO:
        task.environment.setdefault(_STORE, "hash")
