"""Which MPI plugin a step has: `--mpi`, or what is configured, or what the program was found to be linked to."""

from collections.abc import Mapping

from nodectl.config import Config
from nodectl.model.step import Step
from nodectl.wire.dispatch import invalid

_AUTO, _NONE = "auto", "none"
_KIND = "mpi/"


def choose(step: Step, request: Mapping[str, object], config: Config) -> None:
    """Sets it, and tells the step's user of a program that will be alone. Raises Refused for one that is not there."""
    linked = str(request.get("mpi_linked", ""))
    asked = str(request.get("mpi", ""))
    name = asked.removeprefix(_KIND) or config.mpi_default
    known = [plugin.removeprefix(_KIND) for plugin in config.mpi_plugin]
    if name == _AUTO:
        name = linked if linked in known else _NONE
    if name == _NONE:
        if linked and step.ntasks > 1:
            step.told.append(
                f"nodectl: warning: {step.argv[0]} is linked to an MPI library, and --mpi=none: each of the "
                f"{step.ntasks} tasks will be alone in its world (--mpi={linked} lets them find each other)"
            )
        return
    if step.nnodes > 1 and step.part is not None and not step.part.exchange:
        raise invalid("mpi", f"--mpi={name}: this part of a step over {step.nnodes} nodes does not reach the others")
    if name not in known:
        which = f"--mpi={name}" if asked else f"mpi_default = {name!r}"
        raise invalid("mpi", f"{which}: there is no such MPI plugin; there are {', '.join([_NONE, *known[1:]])}")
    step.mpi = _KIND + name
    step.environment["SLURM_MPI_TYPE"] = name
