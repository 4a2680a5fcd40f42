"""The MPI plugin of a step: from `--mpi`, the configuration, or the library linked to the program."""

from collections.abc import Mapping

from nodectl.model.config import Config
from nodectl.model.step import Step
from nodectl.model.wire.dispatch import invalid

_AUTO, _NONE = "auto", "none"
_KIND = "mpi/"


def choose(step: Step, request: Mapping[str, object], config: Config) -> None:
    """Set the step's MPI plugin. Raises Refused for an unknown plugin.

    The user of a program linked to an MPI library gets a warning where --mpi=none leaves each of several tasks alone.
    """
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
    if step.preload:
        raise invalid("preload", f"not with --mpi={name}: its tasks need a socket of the MPI server; --mpi=none")
    if step.nnodes > 1 and step.part is not None and not step.part.exchange:
        raise invalid("mpi", f"--mpi={name}: this part of a step over {step.nnodes} nodes does not reach the others")
    if name not in known:
        which = f"--mpi={name}" if asked else f"mpi_default = {name!r}"
        raise invalid("mpi", f"{which}: there is no such MPI plugin; there are {', '.join([_NONE, *known[1:]])}")
    step.mpi = _KIND + name
    step.environment["SLURM_MPI_TYPE"] = name
