"""The confinement of the calling process for good, before exec.

The process is a task, a script around a task, or a process that enters a container. The filters are loaded before the
fork (`load`). After it there are only system calls, none of which can be undone.
"""

import errno
import os

from nodectl.kernel import _kernel, operations
from nodectl.kernel.identity import BEGAN_AS, enter
from nodectl.model.confinement_level import DEFAULT, NONE, STRICT
from nodectl.model.wire import lean_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from nodectl.kernel.operations import Operation
    from nodectl.model.step import Step

PROGRAMS = 5  # the forkserver's descriptor of the compiled filters
LEAST_LANDLOCK = 2  # Linux 5.19; version 1 allows no rename from one directory to another
TRUNCATION_SINCE = 3  # Linux 6.2
CAP_SETPCAP = 1 << 8  # capability.h
# Of root's capabilities, what is about files, processes and limits: chown, dac_override, fowner, fsetid, kill, setgid,
# setuid, setpcap, net_bind_service, ipc_lock, ipc_owner, sys_chroot, sys_nice, sys_resource, audit_write, setfcap.
_KEPT = {DEFAULT: 0xA184_C5FB, STRICT: 0}

# LANDLOCK_ACCESS_FS_*, landlock(7): to write into a file; to remove and to make in a directory; to move between two.
_WRITE_FILE = 1 << 1
_IN_DIRECTORIES = 0x1FF0
_REFER = 1 << 13
_TRUNCATE = 1 << 14
_TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm")


class CannotConfine(Exception):
    """The error of a process not confined, which must not execute anything; str() is a line."""


class _Held:
    __slots__ = ("bounded", "denied", "landlock", "programs")

    def __init__(self) -> None:
        self.programs: dict[str, bytes] = {}
        self.landlock = 0
        # The levels to which this process, a runner, is confined, and whatever it forks.
        self.bounded = self.denied = NONE


_held = _Held()


def load(fd: int, level: str) -> None:
    """Load the filters of a level, for the confinement of this process and later children. Raises OSError."""
    if level == NONE or level in _held.programs:
        return
    data = os.pread(fd, os.fstat(fd).st_size, 0)
    if not data:
        raise FileNotFoundError(errno.ENOENT, "the daemon has not made what confines", level)
    made = lean_json.load_object(data)
    for name in (DEFAULT, STRICT):
        if name in made:
            _held.programs[name] = bytes.fromhex(str(made[name]))
    _held.landlock = int(str(made["landlock"]))


class Confinement:
    """The confinement of a process of a step; each part is applied once, and none at level none.

    A task takes the parts as operations, of which `locks` may come later than `denials`. TMPDIR counts as it is then.
    """

    __slots__ = ("_calls_denied", "_environment", "_files_locked", "_level", "_step")

    def __init__(self, step: "Step", environment: "Mapping[str, str]") -> None:
        self._step = step
        self._environment = environment
        self._level = step.secure
        self._calls_denied = self._level == NONE
        self._files_locked = self._level != STRICT

    def limit_capabilities(self) -> None:
        """Limit the capabilities of all programs executed later, as root, before the process becomes the user.

        The caller keeps what it has until it executes something. Raises CannotConfine; OSError where its user namespace
        cannot be entered.
        """
        if self._level == NONE:
            return
        enter()  # capabilities bounded before would come back
        self._perform(self.bounds())

    def bounds(self) -> "list[Operation]":
        """Return `limit_capabilities` as operations."""
        if self._level == _held.bounded or BEGAN_AS != 0:  # only root could, and no_new_privs lets no program get one
            return []
        return [operations.bound_capabilities(_KEPT[self._level], self._what("limit the capabilities"))]

    def confine_runner(self, *, for_good: bool) -> None:
        """Confine the caller and any later children, as root, in the parts equal for each task of this level.

        The caller keeps its capabilities. With `for_good`, a caller that runs this step and ends is denied calls: it
        needs none of those that DEFAULT denies, and several that STRICT does. If it cannot be confined, tasks will
        report that. Not where a user namespace will be entered.
        """
        try:
            self._perform(self.bounds())
            _held.bounded = self._level
            if for_good and self._level == DEFAULT:
                self._perform(self.denials())
                _held.denied = DEFAULT
        except CannotConfine:
            pass

    def confine(self) -> None:
        """Confine the process as the user, in the working directory. Raises CannotConfine."""
        self._perform([*self.denials(), *self.locks()])
        self.note(calls_denied=True, files_locked=True)

    def note(self, *, calls_denied: bool = False, files_locked: bool = False) -> None:
        """Note the operations carried out by this process, not to be repeated in children."""
        self._calls_denied |= calls_denied
        self._files_locked |= files_locked

    def denials(self) -> "list[Operation]":
        """Return the operations for no new privileges, and for the system calls denied by the level."""
        if self._calls_denied:
            return []
        why = self._what("the working directory is /, and all files are in it: choose another")
        here = [] if self._files_locked else [operations.no_root_here(why)]
        program = operations.INHERITED if _held.denied == self._level else _held.programs[self._level]
        return [*here, operations.confine(program, self._what("confine"))]

    def locks(self) -> "list[Operation]":
        """Return the operations restricting writes to allowed places, if the level requires this; behind `denials`.

        Landlock: allows writing only here, in temporary directories, to devices and to files open as output.
        """
        if self._files_locked:
            return []
        into_files = _WRITE_FILE | (_TRUNCATE if _held.landlock >= TRUNCATION_SINCE else 0)
        everything = into_files | _IN_DIRECTORIES | _REFER
        dirs = (".", *_temporary(self._step, self._environment))
        return [operations.lock_files(dirs, "/dev", everything, into_files, self._what("lock files"))]

    def _what(self, what: str) -> str:
        return f"secure={self._level}: {what}{'' if what.startswith('the ') else ': '}"

    def _perform(self, wanted: "list[Operation]") -> None:
        try:
            _kernel.perform(wanted, None)
        except OSError as error:
            raise CannotConfine(error.strerror) from None


def _temporary(step: "Step", environment: "Mapping[str, str]") -> "Iterator[str]":
    """Yield temporary directories: the machine's, the job's own, and TMPDIR."""
    yield from _TEMPORARY
    dirs: list[str] = step.container.get("dirs", [])  # type: ignore[assignment]  # the daemon's words
    yield from (line.partition(":")[0] for line in dirs)
    own = environment.get("TMPDIR", "")
    if own.startswith("/"):
        yield own
