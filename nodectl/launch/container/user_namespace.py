"""A job's user namespace: the mapped IDs, and the process making the namespace.

The job's user and each of its groups are mapped to themselves, and no other ID is mapped. So the job's files keep their
owner, other users' files show as nobody's, set-user-ID programs give no rights, and there is no root inside. In the
namespaces that belong to it no process has a capability, but root outside and processes that make a user namespace of
their own. A namespace belongs to the user namespace that its maker was in: so all are made together.

Runs as root in a stepd: only root may map groups and leave setgroups(2) allowed (user_namespaces(7)).
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
_PAGE = os.sysconf("SC_PAGE_SIZE")  # a map must be shorter, because it is written at once
_READ = os.O_RDONLY | os.O_CLOEXEC


def make(identity: "Identity", kinds: int, names: "Mapping[str, str]") -> dict[str, int]:
    """Make a user namespace for `identity` and, inside, namespaces of `kinds` (CLONE_NEW*). Raises OSError.

    `names` gives the name in /proc/PID/ns of each kind. Returns a descriptor for each, and for "user".
    """
    proc = os.open("/proc", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    reader, writer = os.pipe2(os.O_CLOEXEC)
    made: dict[str, int] = {}
    try:
        pid = _namespace.fork_aside(kinds | _namespace.CLONE_NEWUSER, -1)
        if pid == 0:
            _wait_for_caller(reader, writer)
        write(f"{pid}/uid_map", identity_map([identity.uid]), proc)
        write(f"{pid}/gid_map", identity_map(identity.gids), proc)
        for kind, name in {USER: USER, **names}.items():
            made[kind] = os.open(f"{pid}/ns/{name}", _READ, dir_fd=proc)
    except BaseException:
        for fd in made.values():
            os.close(fd)
        raise
    finally:
        for fd in (proc, reader, writer):
            os.close(fd)
    return made


def _wait_for_caller(reader: int, writer: int) -> None:
    """Run the child's whole life, until the caller has opened the namespaces, or has died."""
    try:
        os.close(writer)
        os.read(reader, 1)
    finally:
        os._exit(0)


def identity_map(ids: "Iterable[int]") -> str:
    """Return a uid_map or gid_map of each ID to itself, a line for each range. Raises OSError if too long."""
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


def write(path: str, text: str, proc: "int | None" = None) -> None:
    """Write a file of /proc; the kernel takes a map once, in a single write(2). Raises OSError.

    `proc`: a descriptor of /proc.
    """
    fd = os.open(path if proc is not None else f"/proc/{path}", os.O_WRONLY | os.O_CLOEXEC, dir_fd=proc)
    try:
        os.write(fd, text.encode("ascii"))
    except OSError as error:
        raise OSError(error.errno, f"write {path.partition('/')[2]}: {error.strerror}") from None
    finally:
        os.close(fd)
