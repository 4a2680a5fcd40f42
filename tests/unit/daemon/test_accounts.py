"""Users and groups: one that is not there, and a name service that does not answer."""

from __future__ import annotations

import asyncio
import errno
import resource

import pytest

from nodectl.kernel import _kernel
from nodectl.service.daemon.admission import accounts

NOBODY_HAS = 2_000_000_001


@pytest.mark.parametrize("who", [NOBODY_HAS, str(NOBODY_HAS), "no-such-user-of-nodectl"])
def test_a_user_who_is_not_there_is_unknown(who: int | str) -> None:
    with pytest.raises(accounts.UnknownUser, match="no user"):
        accounts._look_up(who)


def test_a_group_that_is_not_there_is_unknown() -> None:
    with pytest.raises(accounts.UnknownUser, match="no group"):
        asyncio.run(accounts.group_id("no-such-group-of-nodectl"))


def test_a_look_up_that_fails_is_told_with_the_systems_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_kernel, "account_errno", lambda *_: errno.EAGAIN)
    with pytest.raises(accounts.LookUpFailed, match="look up user 'alice': Resource temporarily unavailable"):
        accounts._look_up("alice")
    with pytest.raises(accounts.LookUpFailed, match="look up group 'staff-of-nodectl': Resource temporarily"):
        accounts._look_up_group("staff-of-nodectl")


def test_the_c_library_tells_one_from_the_other() -> None:
    assert _kernel.account_errno(False, None, NOBODY_HAS) == 0
    assert _kernel.account_errno(False, "root", 0) == errno.EAGAIN
    assert _kernel.account_errno(True, "no-such-group-of-nodectl", 0) == 0
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        found = _kernel.account_errno(False, None, NOBODY_HAS)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert found == errno.EMFILE
