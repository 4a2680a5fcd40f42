"""The fence around logins with systemd: slices of users before and after it, root's, a boot, everything taken back."""

from __future__ import annotations

import json
import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodectl.kernel import _kernel
from nodectl.model.cpu_list import mask_of_list
from vm import service
from vm.service import CGROUPS, UNIT, nodectl, systemctl, wait_until
from vm.test_limits import MIB, configure, read
from vm.test_shares import disks

pytestmark = pytest.mark.all

GPU = Path("/dev/nodectl-test-gpu")
USERS = CGROUPS / "user.slice"
SESSION = "fence-session.service"
LIMITS = ("cpuset.cpus", "memory.high", "memory.max")
FREE = ["", "max", "max"]


@pytest.fixture
def gpu() -> Iterator[None]:
    """A device of the key gres; at the end the fence is off, and no session is there."""
    os.mknod(GPU, stat.S_IFBLK, disks()[-1].stat().st_rdev)
    GPU.chmod(0o666)
    configure(gres=f"Name=gpu File={GPU}", core_spec_count=1, login_memory=300, login_weight=50)
    try:
        yield
    finally:
        service.run("systemctl", "stop", SESSION)
        service.run("nodectl", "fence", "off")
        GPU.unlink()


def words(user: str, *more: str) -> list[str]:
    uid = pwd.getpwnam(user).pw_uid
    return ["systemd-run", "--quiet", "--collect", f"--slice=user-{uid}.slice", f"--uid={user}", *more]


def opens(user: str) -> bool:
    """Whether a process among the user's sessions opens the device."""
    return service.run(*words(user, "--pipe", "--wait"), "sh", "-c", f": <{GPU}").returncode == 0


def limits(user: str) -> list[str]:
    """The limits of the user's slice, with what the kernel says where a controller is not enabled."""
    group = USERS / f"user-{pwd.getpwnam(user).pw_uid}.slice"
    return [read(group, name) if (group / name).exists() else free for name, free in zip(LIMITS, FREE, strict=True)]


def status(user: str = "") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(nodectl("fence", "status", "--json", user=user))
    return found


def test_sessions_that_are_there_and_that_come_are_fenced_and_roots_are_not(gpu: None) -> None:
    before = {path: path.read_text() for path in Path("/etc/systemd/system").rglob("*.conf")}
    weight = read(USERS, "cpu.weight") if (USERS / "cpu.weight").exists() else "100"
    systemctl("start", "user.slice")
    service.run(*words("alice", f"--unit={SESSION}"), "sleep", "infinity")
    assert opens("alice")
    nodectl("fence", "on")
    cpus = status()["cpus"]
    assert mask_of_list(cpus).bit_count() == 2
    assert json.loads(nodectl("node", "--json"))["nodes"][0]["cpus"] == (os.cpu_count() or 0) - 2
    fenced = [cpus, str(270 * MIB), str(300 * MIB)]
    wait_until(lambda: limits("alice") == fenced, "the session that was there is fenced")
    assert read(USERS, "cpu.weight") == "50"
    service.run(*words("bob", "--unit=fence-later.service"), "sleep", "infinity")
    service.run(*words("root", "--unit=fence-root.service"), "sleep", "infinity")
    try:
        assert limits("bob") == fenced
        assert limits("root") == FREE
        assert [opens(user) for user in ("alice", "bob", "root")] == [False, False, True]
        assert nodectl("run", "--gpus=1", "sh", "-c", f"(: <{GPU}) && echo open", user="alice") == "open\n"
        found = status("alice")
        assert (found["state"], found["users"], found["denied"]) == ("on", 2, ["gpu:0"])
        systemctl("daemon-reload")
        assert not opens("alice")
    finally:
        systemctl("stop", "fence-later.service", "fence-root.service")
    assert nodectl("fence", "off") == ""
    wait_until(lambda: limits("alice") == FREE, "the limits are gone")
    assert opens("alice")
    assert {path: path.read_text() for path in Path("/etc/systemd/system").rglob("*.conf")} == before
    wait_until(lambda: not (USERS / "cpu.weight").exists() or read(USERS, "cpu.weight") == weight, "the weight is back")
    assert status()["state"] == "off"


def test_wall_stands_again_once_the_service_has_started_and_a_part_is_called_so(gpu: None) -> None:
    nodectl("fence", "on")
    fd = os.open(USERS, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _kernel.fence_devices(fd, [], [])  # as after a boot
    finally:
        os.close(fd)
    assert opens("alice")
    systemctl("restart", UNIT)
    assert not opens("alice")
    systemctl("stop", UNIT)
    assert not opens("alice")
    systemctl("start", UNIT)
    (drop_in,) = Path("/etc/systemd/system/user-.slice.d").iterdir()
    drop_in.unlink()
    assert status()["state"] == "partly"
    nodectl("fence", "on")
    assert status()["state"] == "on"
