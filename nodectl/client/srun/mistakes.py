"""An option with an unknown name: an abbreviation, or a mistake."""

from typing import TYPE_CHECKING

from nodectl.client.command import BadUsage
from nodectl.client.srun.names import names

if TYPE_CHECKING:
    from collections.abc import Iterable


def meant(name: str, known: "Iterable[str]", command: str) -> str:
    """Return the known long option abbreviated by `name`. Raises BadUsage.

    An option of `command`, Slurm's, is never taken for an abbreviation.
    """
    here, others = set(known), names(command)
    if name in others:
        raise BadUsage(f"option '--{name}' is {command}'s, and not offered here")
    found = sorted(long for long in others | here if long.startswith(name))
    if len(found) == 1 and found[0] in here:
        return found[0]
    if len(found) > 1:
        raise BadUsage(f"option '--{name}' is ambiguous; possibilities: {' '.join('--' + long for long in found)}")
    from nodectl.client.nearest import nearest  # the command fails: speed does not matter

    near = nearest(name, here)
    hint = f"; the nearest is --{near}" if near else ""
    raise BadUsage(f"unrecognized option '--{name}'{hint}")
