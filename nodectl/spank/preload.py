"""The host of native plugins in LD_PRELOAD: before libc in the order in which plugins' symbols are looked up.

Plugins call functions by names that libc has too (`error`); a host that was loaded later would lose to it.
ld.so(8) takes blanks and colons in the variable for separators, so below a path with one no native plugin runs.
"""

import os

from nodectl.spank.plugin_file import is_native

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, MutableMapping

HOST = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_spank_host.abi3.so")
VARIABLE = "LD_PRELOAD"


def add(environment: "MutableMapping[str, str]") -> None:
    """Puts the host in front of what is to be preloaded already."""
    others = environment.get(VARIABLE)
    environment[VARIABLE] = f"{HOST}:{others}" if others else HOST


def for_plugins(environment: "Mapping[str, str]", paths: "Iterable[str]") -> "dict[str, str]":
    """The environment of a process that is executed to load these plugins."""
    found = dict(environment)
    if any(map(is_native, paths)):
        add(found)
    return found


def remove() -> None:
    """In the process that was started with it: what leaves this process does not have it."""
    kept = [path for path in os.environ.pop(VARIABLE, "").replace(" ", ":").split(":") if path and path != HOST]
    if kept:
        os.environ[VARIABLE] = ":".join(kept)
