"""The identity of a process, and the two ways of becoming another user.

`become_user` is irreversible: a task calls it once, between its root hooks and anything the user can influence.
`effective_user` is the only reversible drop (SPANK user_init, task_p_post_term). Both run in single-threaded processes
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
    """The user of a step, resolved before any fork. `gids` are all groups, including the primary group."""

    __slots__ = ("gid", "gids", "uid")

    def __init__(self, uid: int, gid: int, gids: "Sequence[int]") -> None:
        self.uid = uid
        self.gid = gid
        self.gids = tuple(sorted({gid, *gids}))


def sign_in(uid: int) -> None:
    """Set this user in the kernel's audit, for the caller and all children, under any later identity.

    Otherwise the audit would name the admin who has started the service.
    """
    try:
        pseudo_file.write("/proc/self/loginuid", str(uid).encode("ascii"))
    except OSError:
        pass  # no audit, or an admin's rule against any change: the records go on naming the old user


def own_keyring() -> None:
    """Give the caller and all children a new session keyring(7).

    Else the processes of all users shared the keyring of the process that started the service, and could read each
    other's keys.
    """
    try:
        _kernel.new_session_keyring()
    except OSError:
        pass  # the kernel has no keys, or a container denies them


_entrances: "list[Callable[[], None]]" = []


def enter_at_the_end(entrance: "Callable[[], None]") -> None:
    """Register `entrance`, by which `become_user` enters the job's user namespace, and not before.

    Root there is not root here, and root's work comes first.
    """
    _entrances.append(entrance)


def enter() -> None:
    """Enter the job's user namespace now. Does nothing without a namespace, or if already done. Raises OSError.

    The caller has work to do between this and `become_user`: the kernel gives every capability in the namespace, and an
    unbounded set of them.
    """
    while _entrances:
        _entrances.pop()()


def become_user(who: Identity) -> None:
    """Give up root for good and verify the result. Raises OSError.

    The process enters the user namespace first, in which root has every capability but is no known user; then it acts
    as `c/operation_confine.c` says.
    """
    enter()
    _kernel.perform([operations.become_user(who.uid, who.gid, who.gids)], None)


class effective_user:  # noqa: N801  # a context manager, read as a verb phrase at its one place
    """`with effective_user(who):` acts as the user and regains root at the end, even after an error.

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
