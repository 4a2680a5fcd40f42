"""The variables that tell a program which part of a GPU its job has: set for a step, removed from what it inherits.

In the daemon and in commands.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import MutableMapping

SHARDS, MEMORY = "SLURM_SHARDS_ON_NODE", "NODECTL_GPU_MEM"
MPS_LIMIT = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
"""Read by NVIDIA's Multi-Process Service, where it runs: a program's memory of the first GPU that the program sees."""
ALL = (SHARDS, MEMORY, MPS_LIMIT)


def mps_limit(memory: "int | str") -> str:
    """Return the value of MPS_LIMIT for so many MiB."""
    return f"0={memory}M"


def remove(environment: "MutableMapping[str, str]") -> None:
    """Remove the amount of memory of another job or step. A limit that a user has set for MPS stays."""
    memory = environment.pop(MEMORY, None)
    if memory is not None and environment.get(MPS_LIMIT) == mps_limit(memory):
        del environment[MPS_LIMIT]
