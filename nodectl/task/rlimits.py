"""Resource limits of a step's processes, setrlimit(2): the node sets the hard limits, the client the soft ones.

Numbers by names without RLIMIT_, -1 for infinity. Used by tasks, epilogs and processes that enter a container.
"""

import resource

from nodectl import messages
from nodectl.kernel import _kernel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Changes = Sequence[tuple[int, tuple[int, int]]]  # numbers of limits, and their soft and hard values

CAP_SYS_RESOURCE = 1 << 24  # capability.h: to raise hard limits and to lower oom_score_adj
_NONE = resource.RLIM_INFINITY


def set_hard(hard: "Mapping[str, int]") -> None:
    """Sets the hard limits, as root. One that root may not raise, as in a container, stays."""
    change(changes(hard))


def changes(hard: "Mapping[str, int]") -> "Changes":
    """What `set_hard` has to change in this process, and in those that it forks now."""
    found = []
    for name, most in hard.items():
        number = getattr(resource, f"RLIMIT_{name}")
        soft, old = resource.getrlimit(number)
        new = _NONE if most < 0 else most
        if new == old:
            continue
        if _less(new, old) == new or _kernel.capabilities()[0] & CAP_SYS_RESOURCE:
            found.append((number, (_less(soft, new), new)))
        else:
            messages.verbose(f"hard limit of {name} to {new}: only CAP_SYS_RESOURCE may raise it; {old} stays")
    return found


def change(found: "Changes") -> None:
    """Makes these changes."""
    for number, limits in found:
        try:
            resource.setrlimit(number, limits)
        except (OSError, ValueError) as error:
            messages.verbose(f"limits number {number} to {limits}: {error}")


def set_soft(soft: "Mapping[str, int]") -> None:
    """Sets the user's soft limits, as far as the hard ones allow."""
    for name, wanted in soft.items():
        number = getattr(resource, f"RLIMIT_{name}")
        hard = resource.getrlimit(number)[1]
        _set(name, number, _less(_NONE if wanted < 0 else wanted, hard), hard, otherwise=hard)


def _less(one: int, other: int) -> int:
    if one == _NONE:
        return other
    return one if other == _NONE else min(one, other)


def _set(name: str, number: int, soft: int, hard: int, *, otherwise: int) -> None:
    try:
        resource.setrlimit(number, (soft, hard))
    except (OSError, ValueError) as error:
        messages.verbose(f"limits of {name} to {soft} and {hard}: {error}; {otherwise} stays")
