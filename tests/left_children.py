"""Children that earlier tests have left in this process: what looks at all children of a process meets them, too."""

import contextlib
import os
from collections.abc import Collection


def collect(own: Collection[int] = ()) -> bool:
    """Collects those that have ended, up to a child of `own`. Returns whether there was one."""
    found = False
    with contextlib.suppress(ChildProcessError):
        while (one := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) and one.si_pid not in own:
            os.waitpid(one.si_pid, 0)
            found = True
    return found
