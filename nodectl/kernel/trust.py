"""The files trusted by root: the only check behind configuration, plugstack.conf and plugins.

A user able to change one of these files, or any directory on the way to it, decides what root does. A path is trusted
when every step of it belongs to root and no other user may write there. The walk is done before the file is opened and
stays true afterwards: in a chain of directories that only root can change, no other user can swap a component between
the look and the use.

Runs in the daemon, the forkserver and the client; imports nothing but `os` and `stat`.
"""

from __future__ import annotations

import errno
import os
import stat

ROOT = frozenset({0})

# The kernel gives up after as many links in one look-up (path_resolution(7)).
_MAX_LINKS = 40
# A POSIX access list that lets a user write shows as the group's write bit (acl(5)), so that two
# bits cover lists too.
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class Untrusted(Exception):
    """The error for a file of root's which a user except root could change.

    `path` is the component that is to blame, which may be a directory above the file or the target of a link; `reason`
    says what is wrong with it and what to do.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path} {reason}")
        self.path = path
        self.reason = reason


def check(path: str) -> None:
    """Raise `Untrusted` unless only root can change `path`; any process, any identity.

    Does nothing when the effective user is not root: a user who runs nodectl's commands on files of their own gives no
    other user any power. Raises `OSError` when the path cannot be followed, `FileNotFoundError` among them.
    """
    if os.geteuid() == 0:
        resolve(path, ROOT)


def is_trusted(path: str) -> bool:
    """Return True if `check` passes. An untrusted program counts as not there where it is not required."""
    try:
        check(path)
    except (OSError, Untrusted):
        return False
    return True


def read(path: str, limit: int) -> bytes:
    """Check `path` and return the content, at most `limit` bytes.

    Raises `Untrusted`, or `OSError`: `IsADirectoryError` for a directory, EINVAL if `path` is neither file nor
    directory, EFBIG for a longer file.
    """
    check(path)
    # O_NONBLOCK: a named pipe in the place of a file must not stop the daemon.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "not a regular file", path)
        content = b""
        while len(content) <= limit:
            chunk = os.read(descriptor, limit + 1 - len(content))
            if not chunk:
                return content
            content += chunk
    finally:
        os.close(descriptor)
    raise OSError(errno.EFBIG, f"longer than {limit} bytes", path)


def resolve(path: str, owners: frozenset[int]) -> str:
    """Follow `path` component by component and return the path without links, dots and double slashes.

    Every component must belong to a user id of `owners` and be writable by its owner only. A sticky directory that
    others may write to (`/tmp`) is passed through if the next component is a directory that passes: its entries cannot
    be renamed by others. It may not hold the file itself or a link, since others can put hard links to root's files
    there. Raises as `check` does.
    """
    pending = os.path.join(os.getcwd(), path).split("/")[::-1]
    here = "/"
    shared = _judge(here, os.lstat(here), owners)
    links = 0
    while pending:
        name = pending.pop()
        if name in ("", "."):
            continue
        if name == "..":
            here = os.path.dirname(here)
            shared = _judge(here, os.lstat(here), owners)
            continue
        entry = os.path.join(here, name)
        status = os.lstat(entry)
        if shared and not stat.S_ISDIR(status.st_mode):
            raise Untrusted(entry, f"lies in {here}, where others may write; move it elsewhere")
        if stat.S_ISLNK(status.st_mode):
            links += 1
            if links > _MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            _judge_owner(entry, status, owners)
            target = os.readlink(entry)
            if target.startswith("/"):
                here = "/"
            shared = _judge(here, os.lstat(here), owners)
            pending.extend(target.split("/")[::-1])
            continue
        shared = _judge(entry, status, owners)
        here = entry
    if shared:
        raise Untrusted(here, "is writable by others")
    return here


def _judge(path: str, status: os.stat_result, owners: frozenset[int]) -> bool:
    """Raise `Untrusted`, or return True for a sticky directory writable by all."""
    _judge_owner(path, status, owners)
    if not status.st_mode & _OTHERS_WRITE:
        return False
    if stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX:
        return True
    mode = stat.S_IMODE(status.st_mode)
    raise Untrusted(path, f"is writable by others than its owner (mode {mode:04o}); chmod go-w it")


def _judge_owner(path: str, status: os.stat_result, owners: frozenset[int]) -> None:
    if status.st_uid not in owners:
        users = "".join(f" or uid {uid}" for uid in sorted(owners - ROOT))
        raise Untrusted(path, f"belongs to uid {status.st_uid} and not to root{users}; chown it")
