"""The directory of a job's container, BASE/JOB, accessible to root alone; in a user's own node to the user alone.

    BASE/JOB/owner      the path of the file of the step that it was made for
    BASE/JOB/first      pid 1 of its pid namespace, if it has one (`pid1.py`)
    BASE/JOB/link       the link of its network namespace, and the link's address (`network_link.py`)
    BASE/JOB/ns/KIND    the job's namespaces, each bound on a file
    BASE/JOB/dirs/_tmp  the job's /tmp

While a container of root's exists BASE/JOB is a private mount of itself. So the namespaces can be bound below it, the
mounts of a site's script there stay there, and one unmount takes everything away. A directory that is to be removed is
renamed first, to BASE/.gone.JOB.RANDOM: from then on the job has no container, however long the removal takes.
BASE/.lock lets only one process at a time look and make: every user may be able to open BASE itself, and a user able to
open it can lock it.

Runs in a stepd and in the processes that serve container requests. Each of them may be killed between any two lines.
The next `remove` of this job removes what it leaves, or `sweep` does, which reads the owner in `owner`.
"""

import errno
import fcntl
import os
import time

from nodectl.kernel import _namespace, trust
from nodectl.kernel.identity import BEGAN_AS
from nodectl.kernel.tree_removal import remove as remove_tree
from nodectl.launch.container import LOCK

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_OWNERS = trust.ROOT | {BEGAN_AS}
_MOUNTS = BEGAN_AS == 0  # only root can mount anything here
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PLAIN = _namespace.RESOLVE_NO_SYMLINKS | _namespace.RESOLVE_NO_MAGICLINKS
_GONE = ".gone."
_PATIENCE = 45.0  # seconds: less than a hook may take
_MOST_PATH = 4096


def open_plain(directory: int, path: str, flags: int = os.O_PATH) -> int:
    """Open a directory below `directory` by a path without symbolic links. Raises OSError with the path."""
    try:
        return _namespace.openat2(directory, path, flags | os.O_DIRECTORY, _PLAIN | _namespace.RESOLVE_BENEATH)
    except OSError as error:
        words = "there is a link on the way" if error.errno == errno.ELOOP else os.strerror(error.errno or 0)
        raise OSError(error.errno, words, path) from None


class JobDir:
    """The directory of a job's container. `fd` is open on BASE/JOB after `make` or `open`."""

    __slots__ = ("base", "fd", "name", "path")

    def __init__(self, base: str, job_id: int) -> None:
        self.base = base
        self.name = str(job_id)
        self.path = f"{base}/{job_id}"
        self.fd = -1

    def make(
        self, owner: str, *, make_base: bool, release: "Callable[[list[JobDir]], str]", may_exist: bool = False
    ) -> None:
        """Make the directory and mount it on itself. Raises OSError: EEXIST for a directory of another living step.

        A dead container's directory is removed first, as by `sweep`; that of the same owner, too, unless it
        `may_exist`: then it is opened.
        """
        base = _open_base(self.base, make=make_base)
        lock = -1
        try:
            lock = _lock(base)  # a sweep must not see it before its owner is written
            try:
                os.mkdir(self.name, 0o700, dir_fd=base)
            except FileExistsError:
                if may_exist and _owner(base, self.name) == owner:
                    self.fd = os.open(self.name, _DIRECTORY, dir_fd=base)
                    return
                if not _may_take(base, self.name, owner):
                    why = "belongs to another node's job: give each node a container_base_path of its own, as with %n"
                    raise FileExistsError(errno.EEXIST, why, self.path) from None
                release([JobDir(self.base, int(self.name))])
                _remove_gone(base, self._set_aside(base))
                os.mkdir(self.name, 0o700, dir_fd=base)
            plain = os.open(self.name, _DIRECTORY, dir_fd=base)
            try:
                _write(plain, "owner", owner)
                if not _MOUNTS:
                    self.fd = os.dup(plain)
                    return
                self.fd = _namespace.clone_mount(plain)
                _namespace.move_mount(self.fd, plain)
                # Only now: what is mounted below a shared mount, as / is under systemd, becomes shared. A mount
                # namespace cannot be bound where it would have to appear in an older one.
                _namespace.set_mount(self.fd, 0, _namespace.MS_PRIVATE, False)
            finally:
                os.close(plain)
        finally:
            _close(lock, base)

    def trusted_base(self) -> str:
        """Return the path of the base without links, if only root, or the user of this node, can change the path.

        Raises OSError.
        """
        return _trusted(self.base, make=False)

    def open(self, trusted_base: str = "") -> None:
        """Open the directory of an existing container. Raises OSError.

        Within a user namespace, where uid 0 has no name, call `trusted_base` before entering the namespace.
        """
        base = _open_dir(trusted_base) if trusted_base else _open_base(self.base, make=False)
        try:
            self.fd = os.open(self.name, _DIRECTORY, dir_fd=base)
        finally:
            os.close(base)

    def write(self, name: str, text: str) -> None:
        """Make a new file in the directory. Raises OSError."""
        _write(self.fd, name, text)

    def read(self, name: str) -> bytes:
        """Return a file's content. Raises OSError."""
        fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=self.fd)
        try:
            return os.read(fd, _MOST_PATH)
        finally:
            os.close(fd)

    def claim(self, name: str, choose: "Callable[[set[str]], str]") -> str:
        """Make a new file with the text from `choose`, given the file's texts in other containers. Returns the text.

        Only one process chooses at a time. Raises OSError, and what `choose` raises.
        """
        base = _open_base(self.base, make=False)
        lock = -1
        try:
            lock = _lock(base)
            others = {_read(base, f"{one}/{name}") for one in os.listdir(base) if not one.startswith(_GONE)}
            text = choose({os.fsdecode(other) for other in others if other})
            self.write(name, text)
            return text
        finally:
            _close(lock, base)

    def has(self, name: str) -> bool:
        """Return True if the directory exists and has this file."""
        return os.path.exists(f"{self.path}/{name}")

    def make_dir(self, name: str, uid: int, gid: int, *, may_exist: bool = False) -> int:
        """Make BASE/JOB/dirs/NAME, owned by the user. Returns a descriptor. Raises OSError."""
        inner = open_plain(self.fd, "dirs", os.O_RDONLY)
        try:
            try:
                os.mkdir(name, 0o700, dir_fd=inner)
            except FileExistsError:
                if not may_exist:
                    raise
            fd = os.open(name, _DIRECTORY, dir_fd=inner)
            os.fchown(fd, uid, gid)
            return fd
        finally:
            os.close(inner)

    def belongs_to(self, owner: str) -> bool:
        """Return True if the directory exists, unless another living step owns the directory. Raises OSError."""
        try:
            base = _open_base(self.base, make=False)
        except FileNotFoundError:
            return False
        try:
            return os.path.lexists(self.path) and _may_take(base, self.name, owner)
        finally:
            os.close(base)

    def remove(self, owner: str) -> str:
        """Unmount and remove the directory, unless another living step owns the directory.

        Returns why something is left, "" for success. A directory that is gone already is a success.
        """
        try:
            base = _open_base(self.base, make=False)
        except FileNotFoundError:
            return ""
        lock = -1
        try:
            lock = _lock(base)
            if not _may_take(base, self.name, owner):
                return ""
            gone = self._set_aside(base)
            fcntl.flock(lock, fcntl.LOCK_UN)
            return _remove_gone(base, gone)
        except OSError as error:
            return f"{self.path}: {error.strerror}"
        finally:
            _close(lock, base)

    def _set_aside(self, base: int) -> str:
        """Unmount and rename the directory, so no process finds the container.

        Returns the new name, "" without a directory. Raises OSError.
        """
        if _MOUNTS:
            _detach_all(self.path)
        name = f"{_GONE}{self.name}.{os.urandom(6).hex()}"
        try:
            os.rename(self.name, name, src_dir_fd=base, dst_dir_fd=base)
        except FileNotFoundError:
            return ""
        return name


def sweep(
    base_path: str, release: "Callable[[list[JobDir]], str]", ended: str = "", *, every: bool = False
) -> list[str]:
    """Remove dead containers, and the rest of earlier removals. Returns a line for each failure.

    A container is dead if its owner's file is gone, or is `ended`; with `every` all are removed. First `release`
    removes what they have elsewhere; it returns an error.
    """
    try:
        base = _open_base(base_path, make=False)
    except FileNotFoundError:
        return []
    lock = -1
    try:
        lock = _lock(base)
        names = [name for name in os.listdir(base) if name.isascii() and name.isdecimal()]
        dead = [JobDir(base_path, int(name)) for name in names if every or _owner(base, name) in (None, ended)]
        why = release(dead)
        for job_dir in dead:
            job_dir._set_aside(base)
        fcntl.flock(lock, fcntl.LOCK_UN)
        gone = [name for name in os.listdir(base) if name.startswith(_GONE)]
        left = [f"{base_path}/{name}: {why}" for name in gone if (why := _remove_gone(base, name))]
        return [why, *left] if why else left
    finally:
        _close(lock, base)


def distrusted(base_path: str) -> str:
    """Return why the way to a base, existing or not, is not trusted, "" if trusted. Raises OSError.

    A way that another user could change is not trusted.
    """
    try:
        trust.resolve(base_path, _OWNERS)
    except FileNotFoundError:
        return distrusted(os.path.dirname(base_path))
    except trust.Untrusted as error:
        return f"not trusted: {error}"
    return ""


def _open_base(path: str, *, make: bool) -> int:
    """Open the base directory by a path which only root, or the user of this node, can change. Raises OSError."""
    return _open_dir(_trusted(path, make=make))


def _trusted(path: str, *, make: bool) -> str:
    """Return the path of the base directory without links. Raises OSError if others can change the path."""
    try:
        return trust.resolve(path, _OWNERS)
    except FileNotFoundError:
        if not make:
            raise
        _make_base(path)
        return trust.resolve(path, _OWNERS)
    except trust.Untrusted as error:
        raise OSError(errno.EPERM, f"not trusted: {error}", path) from None


def _open_dir(real: str) -> int:
    return _namespace.openat2(-1, real, _DIRECTORY, _PLAIN)


def _lock(base: int) -> int:
    """Wait for the base's lock, as root or the user of this node. Returns the lock's descriptor. Raises OSError."""
    fd = os.open(LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600, dir_fd=base)
    fcntl.flock(fd, fcntl.LOCK_EX)
    return fd


def _close(*fds: int) -> None:
    for fd in fds:
        if fd >= 0:
            os.close(fd)


def _make_base(path: str) -> None:
    """Make every missing directory of the path. Each existing directory must be trusted: the next is made there."""
    above = os.path.dirname(path)
    try:
        trust.resolve(above, _OWNERS)
    except FileNotFoundError:
        _make_base(above)
    except trust.Untrusted as error:
        raise OSError(errno.EPERM, f"not trusted: {error}", path) from None
    try:
        os.mkdir(path, 0o755 if BEGAN_AS == 0 else 0o700)
    except FileExistsError:
        pass  # another job was faster


def _owner(base: int, name: str) -> str | None:
    """Return the file of the step owning a container; None if the file is gone, or was never noted."""
    path = os.fsdecode(_read(base, f"{name}/owner"))
    return path if path and os.path.exists(path) else None


def _may_take(base: int, name: str, owner: str) -> bool:
    """Return False for a container of another living step."""
    return _owner(base, name) in (None, owner)


def _read(directory: int, name: str) -> bytes:
    """Return a file's content, b"" without a file."""
    try:
        fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=directory)
    except OSError:
        return b""
    try:
        return os.read(fd, _MOST_PATH)
    finally:
        os.close(fd)


def _detach_all(path: str) -> None:
    while True:
        try:
            _namespace.detach(path)
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.ENOENT):  # no mount there; no such directory
                return
            raise OSError(error.errno, f"unmount: {os.strerror(error.errno or 0)}", path) from None


def _remove_gone(base: int, name: str) -> str:
    """Remove a directory set aside before, unless another process does. Returns "" or why something is left."""
    if not name:
        return ""
    try:
        fd = os.open(name, _DIRECTORY, dir_fd=base)
    except FileNotFoundError:
        return ""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for entry in os.listdir(fd):  # ns and dirs are directories of ours, the rest are files
            try:
                os.unlink(entry, dir_fd=fd)
            except IsADirectoryError:
                continue
        return remove_tree(base, fd, name, time.monotonic() + _PATIENCE)
    except BlockingIOError:
        return ""
    finally:
        os.close(fd)


def _write(directory: int, name: str, text: str) -> None:
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=directory)
    try:
        os.write(fd, os.fsencode(text))
    finally:
        os.close(fd)
