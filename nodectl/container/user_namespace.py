"""A job's user namespace: who is mapped in it, and the process with which it is made.

The job's user is mapped to itself, and so is each of its groups; nobody else is there. So files keep their owners as
far as they are the job's, those of others are nobody's, a set-user-ID program gives nothing, and there is no root in
it: only who is root outside, or makes a user namespace of their own, has a capability in the namespaces that belong to
it. Other namespaces belong to the one that their maker was in: so they are made together with it.

Runs as root in a stepd: only such a caller may map groups and leave setgroups(2) allowed (user_namespaces(7)).
"""

import errno
import os

from nodectl.kernel import _namespace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from nodectl.kernel.identity import Identity

USER = "user"
_MOST_LINES = 340  # of a map: user_namespaces(7)
_PAGE = os.sysconf("SC_PAGE_SIZE")  # likewise, because it is written at once
_READ = os.O_RDONLY | os.O_CLOEXEC


def make(who: "Identity", kinds: int, names: "Mapping[str, str]") -> dict[str, int]:
    """A user namespace for `who` and, belonging to it, new ones of `kinds` (CLONE_NEW*). Returns a descriptor for each
    of `names`, its name in /proc/PID/ns by its kind, and for "user". Raises OSError.
    """
    proc = os.open("/proc", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    go, let_go = os.pipe2(os.O_CLOEXEC)
    made: dict[str, int] = {}
    try:
        pid = _namespace.fork_aside(kinds | _namespace.CLONE_NEWUSER, -1)
        if pid == 0:
            _wait(go, let_go)
        _write(proc, f"{pid}/uid_map", identity_map([who.uid]))
        _write(proc, f"{pid}/gid_map", identity_map(who.gids))
        for kind, name in {USER: USER, **names}.items():
            made[kind] = os.open(f"{pid}/ns/{name}", _READ, dir_fd=proc)
    except BaseException:
        for fd in made.values():
            os.close(fd)
        raise
    finally:
        for fd in (proc, go, let_go):
            os.close(fd)
    return made


def _wait(go: int, let_go: int) -> None:
    """The maker's whole life: until the caller has what it wants, or has died."""
    try:
        os.close(let_go)
        os.read(go, 1)
    finally:
        os._exit(0)


def identity_map(ids: "Iterable[int]") -> str:
    """Each to itself, a line for a range: what is written to uid_map and gid_map. Raises OSError for too many lines."""
    ranges: list[list[int]] = []
    for one in sorted(ids):
        if ranges and one == sum(ranges[-1]):
            ranges[-1][1] += 1
        else:
            ranges.append([one, 1])
    lines = "".join(f"{first} {first} {count}\n" for first, count in ranges)
    if len(ranges) > _MOST_LINES or len(lines) >= _PAGE:
        why = (
            f"{len(ranges)} groups apart are more than a gid_map holds: {_MOST_LINES} lines in less than {_PAGE} bytes"
        )
        raise OSError(errno.E2BIG, why)
    return lines


def _write(proc: int, path: str, text: str) -> None:
    """A map is written once, by one write(2)."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC, dir_fd=proc)
    try:
        os.write(fd, text.encode("ascii"))
    except OSError as error:
        raise OSError(error.errno, f"write {path.partition('/')[2]}: {error.strerror}") from None
    finally:
        os.close(fd)
