"""The command, executed a second time with the host of native plugins before libc (`nodectl/spank/preload.py`).

Which plugins are stacked only the node knows, so the first run asks it; where one of them is native, everything begins
again in the same process, with the private node that the first run may have started.
"""

import os
import sys

from nodectl.client.session import REEXECUTED, PrivateNode
from nodectl.spank import preload


class _This:
    second = False  # ld.so may have ignored what it was told to preload; a third run would do no better


def with_native_host(private: PrivateNode | None) -> None:
    """Begins again, unless this process has the host in its place already. Raises OSError."""
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
    """In the second run: cleans the environment. `words` is the variable's value; the private node to go on with."""
    _This.second = True
    preload.remove()
    if not words:
        return None
    pid, pipe, path = words.split(" ", 2)
    os.set_inheritable(int(pipe), False)
    return PrivateNode(int(pid), int(pipe), path)
