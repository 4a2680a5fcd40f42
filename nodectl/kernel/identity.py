"""Who a process is, and the two ways of becoming somebody else.

`become_user` is the irreversible one: a task calls it once, between its root hooks and anything the user can influence.
`effective_user` is the one reversible drop (SPANK user_init, task_p_post_term). Both run in single-threaded processes
only: set*id(2) of one thread would leave the others behind.
"""

import os

from nodectl.kernel import _kernel, operations, pseudo_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# The uid with which this process, or the one that it was forked from, was executed: 0 in the service, its user's in a
# node of a user's own. A plugin may have changed the ids since.
BEGAN_AS = os.geteuid()


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


def own_keyring() -> None:
    """Gives the caller and its children a session keyring(7) of their own: else the processes of all users shared that
    of whatever started the service, and could read each other's keys.
    """
    try:
        _kernel.new_session_keyring()
    except OSError:
        pass  # the kernel has no keys, or a container denies them


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
    """Gives up root for good and proves it: the user namespace first, in which root has every capability but is nobody;
    then as `c/operation_confine.c` says. Raises OSError.
    """
    enter()
    _kernel.perform([operations.become_user(who.uid, who.gid, who.gids)], None)


class effective_user:  # noqa: N801  # a context manager, read as a verb phrase at its one place
    """`with effective_user(who):` acts as the user and regains root at the end, whatever happened inside.

    Groups and egid first, euid last; back in reverse. Leaving raises OSError if
    root could not be regained: the caller (the stepd) must not go on half-dropped.
    """

    __slots__ = ("_groups", "_who")

    def __init__(self, who: Identity) -> None:
        self._who = who
        self._groups: list[int] | None = None  # root's, which may be none

    def __enter__(self) -> None:
        if BEGAN_AS != 0:
            return  # a node of an ordinary user's own is that user already
        self._groups = os.getgroups()
        os.setgroups(self._who.gids)
        os.setegid(self._who.gid)
        os.seteuid(self._who.uid)

    def __exit__(self, *_: object) -> None:
        if self._groups is None:
            return
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(self._groups)
        if os.geteuid() != 0 or os.getegid() != 0:
            raise OSError(1, "regain root after acting as the user")
