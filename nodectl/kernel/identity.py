"""Who a process is, and the two ways of becoming somebody else.

`become_user` is the irreversible one: a task calls it once, between its root hooks and anything the user can influence.
`effective_user` is the one reversible drop (SPANK user_init, task_p_post_term, files that the stepd opens on the user's
behalf). Both run in single-threaded processes only: set*id(2) of one thread would leave the others behind.
"""

import errno
import os

import prctl

from nodectl.kernel import _kernel, pseudo_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SECBIT_KEEP_CAPS_LOCKED = 1 << 5


class StillPrivileged(OSError):
    """The drop did not take: the process must end at once. `errno` is EPERM, str() says what was left over."""

    def __init__(self, what: str) -> None:
        super().__init__(1, what)


class Identity:
    """The user a step runs as, resolved before any fork. `gids` are all groups, the primary one among them."""

    __slots__ = ("gid", "gids", "uid")

    def __init__(self, uid: int, gid: int, gids: "Sequence[int]") -> None:
        self.uid = uid
        self.gid = gid
        self.gids = tuple(sorted({gid, *gids}))


def sign_in(uid: int) -> None:
    """What the caller and its children do is from now on this user's in the kernel's audit, whoever they become: not
    that of the admin who has started the service.
    """
    try:
        pseudo_file.write("/proc/self/loginuid", str(uid).encode("ascii"))
    except OSError:
        pass  # no audit, or an admin's rule that nobody may ever be another: the records go on telling whom they told


_entrances: "list[Callable[[], None]]" = []


def enter_at_the_end(entrance: "Callable[[], None]") -> None:
    """This process enters its job's user namespace by `entrance`, in `become_user` and not before: root there is not
    root here, and what is root's to do comes first.
    """
    _entrances.append(entrance)


def enter() -> None:
    """Enters it now, for what comes between: the kernel gives every capability in it, and an unbounded set of them.

    Where there is none to enter, or that was done, nothing happens. Raises OSError.
    """
    while _entrances:
        _entrances.pop()()


def become_user(who: Identity) -> None:
    """Gives up root for good and proves it. Raises OSError when a call fails, StillPrivileged when the proof does.

    Order: the user namespace, in which root has every capability but is nobody; groups while we may, then gids, then
    uids, saved ones included (setresuid(2)); the kernel then empties the permitted, effective and ambient capabilities
    (capabilities(7), "Effect of user ID changes"). Inheritable capabilities and securebits survive a change of uid, so
    they are cleared first. A step of root itself keeps root's capabilities.
    """
    enter()
    if prctl.get_securebits() & ~SECBIT_KEEP_CAPS_LOCKED:
        prctl.set_securebits(0)
    if _kernel.capabilities()[2]:
        prctl.cap_inheritable.limit()
    os.setgroups(who.gids)
    os.setresgid(who.gid, who.gid, who.gid)
    os.setresuid(who.uid, who.uid, who.uid)
    if who.uid != 0 and any(_kernel.capabilities()):  # a user namespace without a uid 0: there was no root to give up
        prctl.cap_effective.limit()
        prctl.cap_permitted.limit()
    _prove(who)


def _prove(who: Identity) -> None:
    if os.getresuid() != (who.uid,) * 3:
        raise StillPrivileged(f"user ids are {os.getresuid()}, not {who.uid}")
    if os.getresgid() != (who.gid,) * 3:
        raise StillPrivileged(f"group ids are {os.getresgid()}, not {who.gid}")
    if tuple(sorted(os.getgroups())) != who.gids:
        raise StillPrivileged(f"groups are {sorted(os.getgroups())}, not {list(who.gids)}")
    if prctl.get_securebits() & ~SECBIT_KEEP_CAPS_LOCKED:
        raise StillPrivileged(f"securebits are {prctl.get_securebits():#x}")
    if who.uid == 0:
        return
    if any(_kernel.capabilities()):
        raise StillPrivileged(
            "capabilities are left: effective {:#x}, permitted {:#x}, inheritable {:#x}".format(*_kernel.capabilities())
        )
    for regain in (os.setuid, os.setgid):
        if regain is os.setgid and 0 in who.gids:
            continue  # group 0 is the user's own: going back to it proves nothing
        try:
            regain(0)
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.EINVAL):  # EINVAL: a user namespace does not know uid 0
                raise
            continue
        raise StillPrivileged(f"{regain.__name__}(0) succeeded after the drop")


class effective_user:  # noqa: N801  # a context manager, read as a verb phrase at its one place
    """`with effective_user(who):` acts as the user and regains root at the end, whatever happened inside.

    Groups and egid first, euid last; back in reverse. Leaving raises StillPrivileged's opposite, plain OSError, if
    root could not be regained: the caller (the stepd) must not go on half-dropped.
    """

    __slots__ = ("_groups", "_who")

    def __init__(self, who: Identity) -> None:
        self._who = who
        self._groups: list[int] = []

    def __enter__(self) -> None:
        self._groups = os.getgroups()
        os.setgroups(self._who.gids)
        os.setegid(self._who.gid)
        os.seteuid(self._who.uid)

    def __exit__(self, *_: object) -> None:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(self._groups)
        if os.geteuid() != 0 or os.getegid() != 0:
            raise OSError(1, "regain root after acting as the user")
