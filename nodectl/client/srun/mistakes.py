"""An option that is not known by its whole name: the beginning of one, or a mistake."""

from nodectl.client.command import BadUsage
from nodectl.client.srun.names import names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


def meant(name: str, known: "Iterable[str]", command: str) -> str:
    """The long option that `name` is the beginning of, of those that are known. An option of `command`, Slurm's, is
    never taken for the beginning of another. Raises BadUsage.
    """
    here, others = set(known), names(command)
    if name in others:
        raise BadUsage(f"option '--{name}' is {command}'s and not nodectl's")
    found = sorted(long for long in others | here if long.startswith(name))
    if len(found) == 1 and found[0] in here:
        return found[0]
    if len(found) > 1:
        raise BadUsage(f"option '--{name}' is ambiguous; possibilities: {' '.join('--' + long for long in found)}")
    from nodectl.client.nearest import nearest  # nobody is in a hurry any more

    near = nearest(name, here)
    hint = f"; the nearest is --{near}" if near else ""
    raise BadUsage(f"unrecognized option '--{name}'{hint}")
