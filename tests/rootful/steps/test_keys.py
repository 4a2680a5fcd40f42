"""Keys of the kernel, keyrings(7): a step has none of whoever started the service, nor another step's."""

from __future__ import annotations

import platform
import subprocess

import pytest

from rootful.node import NOBODY, OTHER, Node

KEYCTL = {"x86_64": 250, "aarch64": 219}.get(platform.machine(), 0)
pytestmark = pytest.mark.skipif(not KEYCTL, reason="the number of keyctl(2) is not known for this machine")
# The serial number of the session's keyring: KEYCTL_GET_KEYRING_ID of KEY_SPEC_SESSION_KEYRING.
SESSION = f"import ctypes; print(ctypes.CDLL(None).syscall({KEYCTL}, 0, -3, 0))"
PYTHON = ("/usr/bin/python3", "-c", SESSION)


def test_every_step_has_a_keyring_of_its_own(node: Node) -> None:
    mine = int(subprocess.run(PYTHON, capture_output=True, check=True).stdout)
    steps = [node.run("--secure=none", *PYTHON, user=user) for user in (NOBODY, OTHER, NOBODY)]
    rings = [int(step.stdout) for step in steps]
    if min(mine, *rings) < 0:
        pytest.skip("this machine has no keys for us")
    assert len({mine, *rings}) == 4


def test_tasks_of_a_step_have_one_keyring(node: Node) -> None:
    assert len(set(node.run("-n2", "--secure=none", *PYTHON, user=NOBODY).stdout.split())) == 1
