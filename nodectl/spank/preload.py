"""The host of native plugins in LD_PRELOAD, where the loader finds the host's symbols before libc's.

Plugins call functions by names that libc has too (`error`); a host loaded later would lose to libc. ld.so(8) takes
blanks and colons in the variable for separators, so no native plugin runs if the host's path has one.
"""

import os

from nodectl.spank.plugin_file import is_native

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, MutableMapping

HOST = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_spank_host.abi3.so")
VARIABLE = "LD_PRELOAD"


def add(environment: "MutableMapping[str, str]") -> None:
    """Put the host in front of the libraries preloaded already."""
    others = environment.get(VARIABLE)
    environment[VARIABLE] = f"{HOST}:{others}" if others else HOST


def for_plugins(environment: "Mapping[str, str]", paths: "Iterable[str]") -> "dict[str, str]":
    """Return the environment of a process executed to load the plugins."""
    found = dict(environment)
    if any(map(is_native, paths)):
        add(found)
    return found


def remove() -> None:
    """Remove the host from the environment, so that programs started by this process do not load the host."""
    kept = [path for path in os.environ.pop(VARIABLE, "").replace(" ", ":").split(":") if path and path != HOST]
    if kept:
        os.environ[VARIABLE] = ":".join(kept)
