"""Which programs count as users of a device outside of all jobs, whatever they do not to be found."""

from __future__ import annotations

import os
import signal
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodectl.kernel.processes import cgroup_of
from nodectl.launch.cgroup import tree
from nodectl.launch.cgroup.constraints import cannot_decide_devices
from nodectl.service.daemon.jobs import foreign_look
from rootful.node import NOBODY, wait_until

LOOP = 7
NODE = (1, LOOP, 0)
# A test's machine may be a container that must not have it.
pytestmark = pytest.mark.skipif(cannot_decide_devices() != "", reason="no program can decide about devices here")


@pytest.fixture
def device(tmp_path: Path) -> Path:
    path = tmp_path / "gpu"
    os.mknod(path, stat.S_IFBLK | 0o666, os.makedev(LOOP, 0))
    return path


@pytest.fixture
def forked() -> Iterator[list[int]]:
    """Processes to be ended."""
    pids: list[int] = []
    yield pids
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def user(pids: list[int], device: Path, uid: int = NOBODY.pw_uid) -> int:
    """A process with the device open, which then becomes the user's. /proc shows what it has as root's own, since it
    has executed nothing since.
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.open(device, os.O_RDONLY)
            os.setuid(uid)
            os.write(writer, b"x")
            signal.pause()
        finally:
            os._exit(0)
    pids.append(pid)
    os.close(writer)
    assert os.read(reader, 1) == b"x"
    os.close(reader)
    return pid


def found(base: str = "", scope: str = "", outside: tuple[str, ...] = ()) -> list[int]:
    uses = foreign_look.look({NODE: ["gpu:0"]}, base, scope, outside)
    return [int(str(use["pid"])) for use in uses if use["uid"] == NOBODY.pw_uid]


def test_a_process_that_shows_others_nothing_of_itself_is_found(device: Path, forked: list[int]) -> None:
    pid = user(forked, device)
    assert os.stat(f"/proc/{pid}/fd").st_uid == 0
    assert pid in found()
    assert pid not in found(outside=("nobody",))
    assert foreign_look.look({(2, LOOP, 0): ["gpu:0"]}, "", "", ()) == []


def test_root_and_the_accounts_of_services_are_not(device: Path, forked: list[int]) -> None:
    pids = {user(forked, device, uid) for uid in (0, 1, 999)}
    uses = foreign_look.look({NODE: ["gpu:0"]}, "", "", ())
    assert pids.isdisjoint(use["pid"] for use in uses)


def test_what_is_in_a_job_is_not(device: Path, forked: list[int]) -> None:
    pid = user(forked, device)
    here = f"{cgroup_of().rstrip('/')}/nodectl-test-look-{os.getpid()}"
    groups = [tree.Group(f"{tree.find_mount()}{here}{name}") for name in ("", "/job_7")]
    try:
        for group in groups:
            group.make()
        groups[1].add(pid)
        assert pid not in found(base=here)
        assert pid in found(base=f"{here}/other")
        assert pid not in found(scope=here)
    finally:
        tree.Group(tree.find_mount() + cgroup_of()).add(pid)
        for group in reversed(groups):
            wait_until(group.remove, "it is empty")


def test_one_user_hides_none_of_another_device(tmp_path: Path, device: Path, forked: list[int]) -> None:
    for _ in range(6):
        user(forked, device)
    other = tmp_path / "other"
    os.mknod(other, stat.S_IFBLK | 0o666, os.makedev(LOOP, 1))
    last = user(forked, other)
    uses = foreign_look.look({NODE: ["gpu:0"], (1, LOOP, 1): ["gpu:1"]}, "", "", ())
    assert sum(use["device"] == "gpu:0" for use in uses) == 4
    assert last in [use["pid"] for use in uses]


class Clock:
    """Time goes on by a millisecond with each look at it."""

    now = 0

    def monotonic(self) -> float:
        self.now += 1
        return self.now / 1e3

    def monotonic_ns(self) -> int:
        return int(self.monotonic() * 1e9)


def test_user_with_very_many_descriptors_hides_nothing_of_another_user(
    device: Path, forked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(foreign_look, "_SECONDS", 1e6)
    inherited = len(os.listdir("/proc/self/fd"))  # from whatever ran before in this process
    monkeypatch.setattr(foreign_look, "_OF_USER", (inherited + 200) / 1e3)
    monkeypatch.setattr(foreign_look, "time", Clock())
    many = [os.dup(0) for _ in range(400)]
    hidden = user(forked, device)
    for fd in many:
        os.close(fd)
    last = user(forked, device, NOBODY.pw_uid - 1)
    pids = [use["pid"] for use in foreign_look.look({NODE: ["gpu:0"]}, "", "", ())]
    assert hidden not in pids
    assert last in pids
