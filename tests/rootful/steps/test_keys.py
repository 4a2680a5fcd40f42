"""Keys of the kernel, keyrings(7): a step has none of whoever started the service, nor another step's."""

from __future__ import annotations

import platform
import subprocess

import pytest

from rootful.node import NOBODY, OTHER, PATIENCE, Node

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


def test_every_visitor_has_a_keyring_of_its_own(node: Node) -> None:
    """Else visitors of all users had that of whatever started the service, and its keys."""
    mine = int(subprocess.run(PYTHON, capture_output=True, check=True).stdout)
    service = [int(node.nodectl("run", "--secure=none", *PYTHON, user=NOBODY).stdout)]
    rings = []
    for user in (NOBODY, OTHER):
        with node.popen("--secure=none", "sh", "-c", "echo ready; exec sleep 600", user=user) as client:
            assert client.stdout is not None
            assert client.stdout.readline() == "ready\n"
            job = str(node.last_job())
            rings += [int(node.nodectl("enter", job, *PYTHON, user=user).stdout) for _ in range(2)]
            node.nodectl("signal", "-s", "KILL", job)
            client.communicate(timeout=PATIENCE)
    if min(mine, *rings) < 0:
        pytest.skip("this machine has no keys for us")
    assert len({mine, *service, *rings}) == 6
