"""Where each process of a step is right now: two bytes a process in shared memory, written before a call, not after.
Behind these stands one more for each, by which a task that forks in a hook knows which of its processes goes on. The
last four bytes count who has yet to take copies of the client's streams (`nodectl/kernel/c/operation_open.c`).

The trace has the calls that have returned. This has the one that has not: for a process that dies or leaves
(`os._exit`) inside a plugin's hook, it names that hook. The memory is a memfd of the daemon's, so it survives the
stepd. Writing costs no system call.

Root alone may open it, and nobody can change its size: who is made to read it by way of a descriptor, or has it mapped,
cannot be made to die of it. Tasks write as their users, so what is read is looked up, never believed.
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
        """What a plugin caller reports to: `Progress`, or a socket (`nodectl/spank/reporter.py`)."""

        def enter(self, slot: int, hook: Hook, plugin: int = 0) -> None:
            """The process is about to make the call."""


_BYTES = 3
_COUNT = 4  # bytes of the number at the end
NOWHERE, DONE = 0, 255
_CALLS = (*HOOKS, LOADING)
_INDEX = {hook.call: index + 1 for index, hook in enumerate(_CALLS)}
MOST_PLUGINS = 255


def number_of(hook: "Hook") -> int:
    """What stands for the call in that memory."""
    return _INDEX[hook.call]


class Progress:
    """Slot 0 is the stepd's, slot n + 1 that of task n."""

    __slots__ = ("_heirs", "_memory", "_slots")

    def __init__(self, fd: int, ntasks: int) -> None:
        """Keeps no descriptor. Raises OSError."""
        self._memory = _kernel.shared(fd, _size(ntasks))
        self._slots = self._memory[: _BYTES * (ntasks + 1)]
        self._heirs = 2 * (ntasks + 1)

    def enter(self, slot: int, hook: "Hook", plugin: int = 0) -> None:
        """The process of `slot` is about to make the call; `plugin` is the plugin's place in its stack."""
        self._memory[2 * slot] = _INDEX[hook.call]
        self._memory[2 * slot + 1] = min(plugin, MOST_PLUGINS)

    def clear(self, slot: int) -> None:
        """The process of `slot` is yet to come: one that had the slot before has gone."""
        self._memory[2 * slot] = self._memory[2 * slot + 1] = NOWHERE

    @property
    def memory(self) -> memoryview:
        """All of it: two bytes a slot, the call's number and the plugin's place."""
        return self._memory

    def where(self, slot: int, hook: "Hook") -> tuple[memoryview, int, int]:
        """What `enter` writes: the memory of all slots, by whose size C finds that of heirs (`spank/c/walk.c`); the
        place of the first byte, its value; the plugin's place follows.
        """
        return self._slots, 2 * slot, _INDEX[hook.call]

    def inheritance(self, slot: int) -> tuple[memoryview, int]:
        """Where processes of one task agree which of them goes on, see `_kernel.heir_expect`."""
        return self._memory, self._heirs + slot

    def expect_takers(self, count: int) -> None:
        """So many will take copies of the client's streams. None of them is there yet."""
        self._memory[-_COUNT:] = count.to_bytes(_COUNT, sys.byteorder)

    def done(self, slot: int) -> None:
        """The process of `slot` has come through: a task is about to exec, the stepd has written its record."""
        self._memory[2 * slot] = DONE

    def place(self, slot: int) -> "tuple[Hook | None, int]":
        """The call that the process of `slot` was in last and the plugin's place; (None, 0) before the first, after
        the last.
        """
        return _read(self._memory[2 * slot : 2 * slot + 2])

    def is_done(self, slot: int) -> bool:
        """True when the process has come through."""
        return self._memory[2 * slot] == DONE


def stepd_place(fd: int) -> "tuple[Hook | None, int]":
    """What `Progress.place` says of the stepd, for a process that has only the descriptor."""
    return _read(os.pread(fd, 2, 0))


def has_task(fd: int) -> bool:
    """Whether the first task's process was ever there: it says so before it executes anything of its user's."""
    return os.pread(fd, 2, 2) != bytes(2)


def _read(shared: "memoryview | bytes") -> "tuple[Hook | None, int]":
    entry = bytes(shared)  # looked at once: its process writes meanwhile
    if len(entry) < 2 or entry[0] in (NOWHERE, DONE) or entry[0] > len(_CALLS):
        return None, 0
    return _CALLS[entry[0] - 1], entry[1]


def _size(ntasks: int) -> int:
    """In bytes. The number at the end is aligned as C wants one."""
    return (_BYTES * (ntasks + 1) + _COUNT - 1) // _COUNT * _COUNT + _COUNT


def make(ntasks: int) -> int:
    """A descriptor of fresh memory for so many tasks. The caller closes it. Raises OSError."""
    fd = os.memfd_create("nodectl-progress", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.fchmod(fd, 0o600)
        os.ftruncate(fd, _size(ntasks))
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    except OSError:
        os.close(fd)
        raise
    return fd
