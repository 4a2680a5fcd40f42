"""Resource limits of a step's processes, setrlimit(2): the node sets the hard limits, the client the soft limits.

Numbers by names without RLIMIT_, -1 for infinity. Used by tasks, epilogs and processes that enter a container.
"""

import resource

from nodectl import messages
from nodectl.kernel import _kernel, operations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from nodectl.kernel.operations import Operation

CAP_SYS_RESOURCE = 1 << 24  # capability.h: to raise hard limits and to lower oom_score_adj
_NONE = resource.RLIM_INFINITY


def set_hard(hard: "Mapping[str, int]") -> None:
    """Set the hard limits, as root. A limit not to be raised by root, as in a container, stays."""
    _kernel.perform(hard_limits(hard), None)


def hard_limits(hard: "Mapping[str, int]") -> "list[Operation]":
    """Return the operations changing the hard limits of this process, or of forks made now, to `hard`."""
    found = []
    for name, most in hard.items():
        number = getattr(resource, f"RLIMIT_{name}")
        soft, old = resource.getrlimit(number)
        new = _NONE if most < 0 else most
        if new == old:
            continue
        if _less(new, old) == new or _kernel.capabilities()[0] & CAP_SYS_RESOURCE:
            found.append(operations.hard_limit(number, _less(soft, new), new, _failure("hard", name, new)))
        else:
            messages.verbose(f"hard limit of {name} to {new}: only CAP_SYS_RESOURCE may raise it; {old} stays")
    return found


def set_soft(soft: "Mapping[str, int]") -> None:
    """Set the user's soft limits, as far as the hard limits allow."""
    _kernel.perform(soft_limits(soft), None)


def soft_limits(soft: "Mapping[str, int]") -> "list[Operation]":
    """Return the operations setting the user's soft limits."""
    return [
        operations.soft_limit(getattr(resource, f"RLIMIT_{name}"), wanted, _failure("soft", name, wanted))
        for name, wanted in soft.items()
    ]


def _failure(kind: str, name: str, wanted: int) -> str:
    """Return the message for a failure to set a limit; "" unless verbose messages are heard."""
    if not messages.hears(messages.VERBOSE):
        return ""
    return f"nodectl: {kind} limit of {name} to {'infinity' if wanted < 0 else wanted}: "


def _less(one: int, other: int) -> int:
    if one == _NONE:
        return other
    return one if other == _NONE else min(one, other)
