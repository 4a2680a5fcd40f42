"""The current position of each process of a step: two bytes a process in shared memory, written before each call.

Behind these bytes stands a further byte for each process, by which a task that forks in a hook knows which of its
processes goes on. The last four bytes count the processes that have yet to copy the client's streams
(`nodectl/kernel/c/operation_open.c`).

The trace has the calls that have returned. This memory has the call that has not: for a process that dies or leaves
(`os._exit`) inside a plugin's hook, it names that hook. The memory is a memfd of the daemon's, so it survives the
stepd. Writing costs no system call.

Only root may open it, and no process can change its size: a process that reads it by a descriptor, or has it mapped,
cannot die of a changed size. Tasks write as their users, so the reader looks values up and never trusts them.
"""

import fcntl
import os
import sys

from nodectl.kernel import _kernel
from nodectl.model.launch_order import HOOKS, LOADING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    from nodectl.model.launch_order import Hook

    class ProgressReporter(Protocol):
        """The receiver of a plugin caller's reports: `Progress`, or a socket (`nodectl/spank/reporter.py`)."""

        def enter(self, slot: int, hook: Hook, plugin: int = 0) -> None:
            """Report the call about to be made by the process."""


_BYTES = 3
_COUNT = 4  # bytes of the number at the end
NOWHERE, DONE = 0, 255
_CALLS = (*HOOKS, LOADING)
_INDEX = {hook.call: index + 1 for index, hook in enumerate(_CALLS)}
MOST_PLUGINS = 255


def number_of(hook: "Hook") -> int:
    """Return the number of the call in the memory."""
    return _INDEX[hook.call]


class Progress:
    """The positions of a step's processes. Slot 0 is the stepd's, slot n + 1 the slot of task n."""

    __slots__ = ("_memory", "_slots", "_successors")

    def __init__(self, fd: int, ntasks: int) -> None:
        """Map the memory without keeping the descriptor. Raises OSError."""
        self._memory = _kernel.shared(fd, _size(ntasks))
        self._slots = self._memory[: _BYTES * (ntasks + 1)]
        self._successors = 2 * (ntasks + 1)

    def enter(self, slot: int, hook: "Hook", plugin: int = 0) -> None:
        """Note the call about to be made by the process of `slot`; `plugin` is the plugin's place in the stack."""
        self._memory[2 * slot] = _INDEX[hook.call]
        self._memory[2 * slot + 1] = min(plugin, MOST_PLUGINS)

    def clear(self, slot: int) -> None:
        """Clear the slot for a new process after the end of an earlier process."""
        self._memory[2 * slot] = self._memory[2 * slot + 1] = NOWHERE

    @property
    def memory(self) -> memoryview:
        """The whole memory: two bytes a slot, the call's number and the plugin's place."""
        return self._memory

    def where(self, slot: int, hook: "Hook") -> tuple[memoryview, int, int]:
        """Return the place of the bytes for `enter`: the memory of all slots, the first byte's place and value.

        The plugin's place follows that byte. The memory's size tells C the memory of successors (`spank/c/walk.c`).
        """
        return self._slots, 2 * slot, _INDEX[hook.call]

    def inheritance(self, slot: int) -> tuple[memoryview, int]:
        """Return the place where processes of a task agree on the process to go on; see `_kernel.successor_expect`."""
        return self._memory, self._successors + slot

    def expect_takers(self, count: int) -> None:
        """Set the count of processes still to copy the client's streams."""
        self._memory[-_COUNT:] = count.to_bytes(_COUNT, sys.byteorder)

    def done(self, slot: int) -> None:
        """Mark the process of `slot` as done: a task is about to exec, or the stepd has written the record."""
        self._memory[2 * slot] = DONE

    def place(self, slot: int) -> "tuple[Hook | None, int]":
        """Return the last call of the process of `slot` and the plugin's place.

        Return (None, 0) before the first call and after the last.
        """
        return _read(self._memory[2 * slot : 2 * slot + 2])

    def is_done(self, slot: int) -> bool:
        """Return True if the process of `slot` is done."""
        return self._memory[2 * slot] == DONE


def stepd_place(fd: int) -> "tuple[Hook | None, int]":
    """Return the stepd's `Progress.place`, for a process with only the descriptor."""
    return _read(os.pread(fd, 2, 0))


def has_task(fd: int) -> bool:
    """Return True if the first task's process has ever run.

    The process notes this before it executes anything of its user.
    """
    return os.pread(fd, 2, 2) != bytes(2)


def _read(shared: "memoryview | bytes") -> "tuple[Hook | None, int]":
    entry = bytes(shared)  # looked at once: its process writes meanwhile
    if len(entry) < 2 or entry[0] in (NOWHERE, DONE) or entry[0] > len(_CALLS):
        return None, 0
    return _CALLS[entry[0] - 1], entry[1]


def _size(ntasks: int) -> int:
    """Return the memory's size in bytes. The number at the end is aligned for C."""
    return (_BYTES * (ntasks + 1) + _COUNT - 1) // _COUNT * _COUNT + _COUNT


def make(ntasks: int) -> int:
    """Return a descriptor of new memory for `ntasks` tasks. The caller closes the descriptor. Raises OSError."""
    fd = os.memfd_create("nodectl-progress", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.fchmod(fd, 0o600)
        os.ftruncate(fd, _size(ntasks))
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    except OSError:
        os.close(fd)
        raise
    return fd
