"""Accounts: name, primary group and all groups of a uid, from the name service.

A look-up may take seconds (LDAP), so it runs in a thread; the daemon never forks. Answers are kept for
`user_cache_seconds`.
"""

import asyncio
import grp
import os
import pwd
import time

from nodectl.kernel import _kernel
from nodectl.model.number import whole
from nodectl.service.daemon.admission.turns import Turns

_NO_ID = 2**32 - 1  # what setresgid(2) takes for "leave it"
_NO_USER = -1  # the turn for look-ups of uids that may have no account


class UnknownUser(Exception):
    """An unknown user or group; str() is a single line."""


class LookUpFailed(Exception):
    """A failed look-up: the user or group may exist or not; str() is a single line."""


class User:
    """A user's account."""

    __slots__ = ("gid", "gids", "name", "uid")

    def __init__(self, uid: int, name: str, gid: int, gids: tuple[int, ...]) -> None:
        self.uid = uid
        self.name = name
        self.gid = gid
        self.gids = gids


class Users:
    """The cache of accounts. `turns` lets each user wait for a single look-up at a time."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.turns = Turns()
        self._known: dict[int | str, tuple[float, User]] = {}

    async def get(self, who: int | str) -> User:
        """Return the account of a uid or name. Raises UnknownUser, LookUpFailed."""
        known = self.known(who)
        if known is not None:
            return known
        user = await asyncio.to_thread(_look_up, who)
        if len(self._known) > 4096:  # no user list is longer; a scan of uids would be
            self._known.clear()
        self._known[who] = (time.monotonic() + self._seconds, user)
        return user

    async def exist(self, uid: int) -> bool:
        """Return True for a uid with an account. Only a single uid is looked up at a time."""
        if self.known(uid) is not None:
            return True
        async with self.turns.of(_NO_USER):
            try:
                await self.get(uid)
            except (UnknownUser, OSError):
                return False
        return True

    def known(self, who: int | str) -> User | None:
        """Return the account if in the cache, without waiting; None for a missing account."""
        found = self._known.get(who)
        return found[1] if found is not None and found[0] > time.monotonic() else None

    def forget(self) -> None:
        """Empty the cache."""
        self._known.clear()


async def group_id(name: str) -> int:
    """Return the gid of a group by name or number. Raises UnknownUser, LookUpFailed."""
    if name.isdecimal():
        gid = whole(name, _NO_ID - 1)
        if gid is None:
            raise UnknownUser(f"no group {name!r}")
        return gid
    return await asyncio.to_thread(_look_up_group, name)


def _look_up_group(name: str) -> int:
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        raise _not_found("group", name, name, 0) from None


def _not_found(kind: str, who: int | str, name: str | None, number: int) -> UnknownUser | LookUpFailed:
    """Return the right error: Python has the same error for a missing account and a failing name service."""
    if error := _kernel.account_errno(kind == "group", name, number):
        return LookUpFailed(f"look up {kind} {who!r}: {os.strerror(error)}")
    return UnknownUser(f"no {kind} {who!r}")


def _look_up(who: int | str) -> User:
    try:
        uid = who if isinstance(who, int) else whole(who, _NO_ID) if who.isdecimal() else None
        entry = pwd.getpwnam(str(who)) if uid is None else pwd.getpwuid(uid)
    except OverflowError:
        raise UnknownUser(f"no user {who!r}") from None
    except KeyError:
        raise _not_found("user", who, str(who) if uid is None else None, uid or 0) from None
    try:
        gids = os.getgrouplist(entry.pw_name, entry.pw_gid)
    except OSError as error:
        raise LookUpFailed(f"look up the groups of {entry.pw_name}: {error.strerror}") from None
    return User(entry.pw_uid, entry.pw_name, entry.pw_gid, tuple(gids))
