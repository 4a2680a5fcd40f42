"""The reports of a SPANK process to the daemon: the position before each call, and the result.

The daemon executes such processes for jobs and for the slurmd context. The process sends one JSON object a line through
a socket, so that the daemon can name plugin and hook if the process dies there. For the plugin caller it takes the
place of a step's `Progress` (`nodectl/plugin_host/tracing/progress.py`).
"""

import os

from nodectl.model.wire.lean_json import dumps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nodectl.model.launch_order import Hook
    from nodectl.model.plugstack_entry import Entry
    from nodectl.spank.stack import Stack

SHUTDOWN = b"x"  # the daemon's word to the slurmd context, which lives as long as the daemon
DEAF = 126  # the exit status of a process whose plugin has closed the socket


class Reporter:
    """The sender of the reports. `fd` is this process's end of the socket.

    `stack` knows the names of loaded plugins, `entries` the names before loading.
    """

    __slots__ = ("_fd", "entries", "stack")

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.stack: Stack | None = None
        self.entries: Sequence[Entry] = ()

    def enter(self, slot: int, hook: "Hook", plugin: int = 0) -> None:
        """Report the call about to be made to the plugin at this place of the stack."""
        del slot  # one process, one place
        name = "" if self.stack is None else self.stack.name(plugin)
        if not name:  # not loaded yet
            name = os.path.splitext(os.path.basename(self.entries[plugin].path))[0]
        self._say({"plugin": name, "place": plugin, "call": hook.call})

    def ended(self, why: str) -> None:
        """Report the end of the work; `why` is the failure on a line, "" for success."""
        self._say({"why": why})

    def _say(self, what: "Mapping[str, object]") -> None:
        try:
            # A line of its own, whatever a plugin has written there.
            os.write(self._fd, b"\n" + dumps(what).encode("ascii") + b"\n")
        except BrokenPipeError:
            return  # the daemon has gone: its successor does the rest of this process's work
        except OSError:
            os._exit(DEAF)

    def listen(self) -> bytes:
        """Wait for the daemon's word. Return b"" if the daemon has gone without a word."""
        try:
            return os.read(self._fd, 1)
        except ConnectionError:
            return b""
        except OSError:
            os._exit(DEAF)
