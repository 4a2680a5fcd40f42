"""Confines the calling process for good: a task, a script around it, a process that enters a container; before exec.

The filters are loaded before the fork (`load`). After it there are only system calls, none of which can be undone.
"""

import errno
import os
import stat

import prctl

from nodectl.kernel import _kernel
from nodectl.kernel.identity import enter
from nodectl.model.confinement_level import DEFAULT, NONE, STRICT
from nodectl.wire import lean_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

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
    """The caller could not be confined and must not execute anything; str() is one line."""


class _Held:
    __slots__ = ("landlock", "programs")

    def __init__(self) -> None:
        self.programs: dict[str, bytes] = {}
        self.landlock = 0


_held = _Held()


def load(fd: int, level: str) -> None:
    """From now on this process and its children can confine themselves to the level. Raises OSError."""
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
    """Confines one process of a step; each part is done once. At level none each method returns at once.

    `lock_files` may come later than `deny_calls`. TMPDIR counts as it is then.
    """

    __slots__ = ("_calls_denied", "_environment", "_files_locked", "_level", "_step")

    def __init__(self, step: "Step", environment: "Mapping[str, str]") -> None:
        self._step = step
        self._environment = environment
        self._level = step.secure
        self._calls_denied = self._level == NONE
        self._files_locked = self._level != STRICT

    def limit_capabilities(self) -> None:
        """As root, before it becomes the user: what no program may have any more, whoever executes it.

        The caller keeps what it has until it executes something. Raises CannotConfine; OSError where its user namespace
        cannot be entered.
        """
        if self._level == NONE:
            return
        enter()  # what was bounded before would not be there
        try:
            _kernel.bound_capabilities(_KEPT[self._level])  # prctl's own takes 5 us for each of two dozen
        except OSError as error:
            raise self._failed("limit the capabilities", error) from None

    def confine(self) -> None:
        """As the user, in the working directory. Raises CannotConfine."""
        self.deny_calls()
        self.lock_files()

    def deny_calls(self) -> None:
        """No new privileges, no system call that the level denies. As `confine`."""
        if self._calls_denied:
            return
        if not self._files_locked and _is_root("."):
            raise CannotConfine("secure=strict: the working directory is /, and all files are in it: choose another")
        try:
            prctl.set_no_new_privs(1)
            _kernel.seccomp(_held.programs[self._level])
        except OSError as error:
            raise self._failed(error.filename, error) from None
        self._calls_denied = True

    def lock_files(self) -> None:
        """Nothing is written but where a step may write, if its level says so. As `confine`, and not before calls are
        denied.
        """
        if self._files_locked:
            return
        try:
            self._lock_files()
        except OSError as error:
            raise self._failed(error.filename, error) from None
        self._files_locked = True

    def _failed(self, what: object, error: OSError) -> CannotConfine:
        return CannotConfine(f"secure={self._level}: {f'{what}: ' if what else ''}{error.strerror}")

    def _lock_files(self) -> None:
        """Landlock: allows writing only here, in temporary directories, to devices and to files open as output."""
        into_files = _WRITE_FILE | (_TRUNCATE if _held.landlock >= TRUNCATION_SINCE else 0)
        everything = into_files | _IN_DIRECTORIES | _REFER
        ruleset = _kernel.landlock_ruleset(everything)
        for path in (".", *_temporary(self._step, self._environment)):
            _allow(ruleset, path, everything)
        _allow(ruleset, "/dev", into_files)
        for output in (1, 2):
            if stat.S_ISREG(os.fstat(output).st_mode):  # /dev/stdout is opened anew
                _kernel.landlock_allow(ruleset, output, into_files)
        _kernel.landlock_restrict(ruleset)
        os.close(ruleset)


def _temporary(step: "Step", environment: "Mapping[str, str]") -> "Iterator[str]":
    """Temporary directories: the machine's, the job's own, and TMPDIR."""
    yield from _TEMPORARY
    dirs: list[str] = step.container.get("dirs", [])  # type: ignore[assignment]  # the daemon's words
    yield from (line.partition(":")[0] for line in dirs)
    own = environment.get("TMPDIR", "")
    if own.startswith("/"):
        yield own


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return  # it is missing or closed to the user: nothing can be written there
    try:
        if not _is_root(fd):
            _kernel.landlock_allow(ruleset, fd, rights)
    finally:
        os.close(fd)


def _is_root(directory: "str | int") -> bool:
    return os.path.samestat(os.stat(directory), os.stat("/"))
