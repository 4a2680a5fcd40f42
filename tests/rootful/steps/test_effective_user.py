"""Acting as the user for a while: root comes back as it was, whatever groups it has."""

from __future__ import annotations

import subprocess
import sys

import pytest

_SCRIPT = """
import os
from nodectl.kernel.identity import Identity, effective_user
def me():
    return os.geteuid(), os.getegid(), sorted(os.getgroups())
os.setgroups({groups})
with effective_user(Identity({uid}, 7, [8])):
    print(me())
print(me())
"""


@pytest.mark.parametrize("uid", [65534, 0])
@pytest.mark.parametrize("groups", [[], [3, 4]])
def test_who_acted_as_the_user_is_root_again(uid: int, groups: list[int]) -> None:
    """A service has no groups beside its own; who took that for never having been root stayed the user."""
    script = _SCRIPT.format(uid=uid, groups=groups)
    done = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [str((uid, 7, [7, 8])), str((0, 0, groups))], done.stderr


_LEFT = """
import os
from nodectl.kernel.identity import Identity, become_user
os.setgroups([4])
os.setresgid(7, 7, 7)
os.setresuid(65534, 65534, 65534)
become_user(Identity(65534, 7, [7]))
print(os.getgroups())
"""


def test_a_task_does_not_begin_with_roots_groups_where_a_plugin_was_quicker_to_become_the_user() -> None:
    """Only who never was root has nothing to give up."""
    done = subprocess.run([sys.executable, "-P", "-c", _LEFT], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, ""), done.stdout
    assert "PermissionError" in done.stderr
