"""Where the files of a user's own node are."""

from __future__ import annotations

import posix
import pwd

import pytest

from nodectl.model.config import own_node


def test_a_uid_without_account_and_home_has_no_node_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command with --config asks for it, and ended with a traceback."""

    def unknown(uid: int) -> pwd.struct_passwd:
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    for name in (b"HOME", b"XDG_CONFIG_HOME"):
        monkeypatch.delitem(posix.environ, name, raising=False)
    assert not own_node.is_own("/etc/nodectl/nodectl.toml")
    assert own_node.configuration() == "/nonexistent/.config/nodectl/nodectl.toml"
