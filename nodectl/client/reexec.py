"""The second execution of the command, with the host of native plugins loaded before libc (`nodectl/spank/preload.py`).

Only the node knows which plugins are stacked, so the first run asks it; if any is native, everything begins again in
the same process, with the private node which the first run may have started.
"""

import os
import sys

from nodectl.client.session import REEXECUTED, PrivateNode
from nodectl.spank import preload


class _This:
    second = False  # ld.so may have ignored LD_PRELOAD; a third run would not change that


def with_native_host(private: PrivateNode | None) -> None:
    """Execute the command again, unless the host is loaded already. Raises OSError."""
    from nodectl.spank import _spank_host  # only for native plugins

    if _This.second or _spank_host.preloaded():
        return
    words = ""
    if private is not None:
        os.set_inheritable(private.pipe, True)
        words = f"{private.pid} {private.pipe} {private.path}"
    os.environ[REEXECUTED] = words
    preload.add(os.environ)
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def resume(words: str) -> PrivateNode | None:
    """Clean the environment in the second run, and return the private node to continue with.

    `words` is the variable's value.
    """
    _This.second = True
    preload.remove()
    if not words:
        return None
    pid, pipe, path = words.split(" ", 2)
    os.set_inheritable(int(pipe), False)
    return PrivateNode(int(pid), int(pipe), path)
