"""Whether a plugin may have a hook, found out without running any of it: the name occurs in its file.

The daemon asks at each launch whether a job needs a process of its own for its prolog. The answer is cached by the
file's stamp; a false yes costs that process, which decides finally. A name that a plugin puts together at run time is
not found: a hook stands in its file by its name.
"""

import os
import re
import stat
from collections.abc import Iterable

from nodectl.kernel import _kernel
from nodectl.model.plugstack_entry import Entry

_NAME = rb"slurm_spank_[a-z_]+"  # compiled when it is wanted
_MOST = 4096  # files
_LONGEST = 256 << 20


class MentionedHooks:
    """The cache: by path, the names that occur. `changes` counts how often a file was found to be another."""

    def __init__(self) -> None:
        self.changes = 0
        self._known: dict[str, tuple[bytes, frozenset[str]]] = {}

    def places(self, stack: Iterable[Entry], calls: Iterable[str]) -> list[int]:
        """Places in the stack of the plugins that mention one of the functions."""
        wanted = frozenset(calls)
        return [
            place for place, entry in enumerate(stack) if not entry.missing and not wanted.isdisjoint(self._in(entry))
        ]

    def _in(self, entry: Entry) -> frozenset[str]:
        stamp = _kernel.stamp(entry.path)  # b"" where there is none: the step will tell
        known = self._known.get(entry.path)
        if known is None or known[0] != stamp:
            if len(self._known) >= _MOST:
                self._known.clear()
            known = self._known[entry.path] = (stamp, _names(entry.path))
            self.changes += 1
        return known[1]


def _names(path: str) -> frozenset[str]:
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return frozenset()  # to open it might never end
        with open(path, "rb") as file:
            return frozenset(match.decode("ascii") for match in re.findall(_NAME, file.read(_LONGEST)))
    except OSError:
        return frozenset()  # as above
