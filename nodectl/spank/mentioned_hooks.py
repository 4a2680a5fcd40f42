"""Tells whether a plugin may have a hook, without running the plugin: the hook's name occurs in the file.

The daemon asks at each launch whether a job needs a separate process for its prolog. The answer is cached by the file's
stamp. A false yes costs that process, which makes the final decision. A name that a plugin composes at run time is not
found: a hook stands in its file by its name.
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
    """A cache of the hook names in each file. `changes` counts how often a file was new or had changed."""

    def __init__(self) -> None:
        self.changes = 0
        self._known: dict[str, tuple[bytes, frozenset[str]]] = {}

    def places(self, stack: Iterable[Entry], calls: Iterable[str]) -> list[int]:
        """Return the places in the stack of the plugins with any of the functions."""
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
