"""The corner of logins as values: its limits, its mark, and systemd's files for it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from nodectl.cli import fence_units
from nodectl.launch.cgroup import corner, device_access
from nodectl.launch.cgroup.corner import Corner, LoginShare
from nodectl.model.wire import lean_json
from nodectl.placement.machine.declared_devices import Device
from nodectl.service.config_file.reader import build
from nodectl.service.daemon.jobs import foreign_look

SHARE = LoginShare("2-3", 1000, 50)
LOGINS = Corner("/sys/fs/cgroup/user.slice", True, SHARE, (0, 1000))  # as the mark has it


def test_logins_have_the_memory_that_jobs_leave_unless_the_configuration_says_how_much() -> None:
    assert corner.share_of(build({}), "", 8000) == LoginShare("", 0, 100)
    assert corner.share_of(build({"real_memory": 6000}), "3", 8000) == LoginShare("3", 2000, 100)
    assert corner.share_of(build({"real_memory": 6000, "login_memory": 500}), "", 8000).memory == 500
    assert corner.share_of(build({"real_memory": 9000}), "", 8000).memory == 0


def test_limits_are_files_of_a_cgroup() -> None:
    assert SHARE.files() == {
        "cpuset.cpus": "2-3",
        "memory.high": str(900 << 20),
        "memory.max": str(1000 << 20),
        "cpu.weight": "50",
        "io.weight": "default 50",
    }
    assert LoginShare("", 0, 100).files() == {"cpu.weight": "100", "io.weight": "default 100"}


def test_mark_tells_the_corner_and_a_broken_one_is_refused(tmp_path: Path) -> None:
    config = build({"state_dir": str(tmp_path)})
    assert corner.mark(config) is None
    assert corner.corner_of(corner.fields_of(LOGINS)) == LOGINS
    fields = corner.fields_of(LOGINS)
    wrong = [fields | change for change in ({"free": ["alice"]}, {"free": [1 << 32]}, {"path": 1}, {"memory": "1"})]
    for broken in ("", "{}", "[]", '{"path": 1}', *map(lean_json.dumps, wrong)):
        Path(corner.mark_of(config)).write_text(broken)
        with pytest.raises(ValueError):  # noqa: PT011  # also that of JSON
            corner.mark(config)
        assert corner.keep(config, ()).startswith("the fence around logins: ")


def test_every_user_has_the_limits_but_root_and_those_who_are_named() -> None:
    texts = fence_units.texts(LOGINS)
    assert "AllowedCPUs=2-3\nMemoryHigh=900M\nMemoryMax=1000M\n" in texts["user-.slice"]
    assert texts["user.slice"].endswith("[Slice]\nCPUWeight=50\nIOWeight=50\n")
    for outside in ("user-0.slice", "user-1000.slice"):
        assert all(line.startswith("#") for line in texts[outside].splitlines())


def test_files_are_replaced_and_taken_back_without_a_trace(tmp_path: Path) -> None:
    root = str(tmp_path)
    own = tmp_path / "user-.slice.d" / "other.conf"
    own.parent.mkdir()
    own.write_text("[Slice]\nTasksMax=100\n")
    fence_units.write(LOGINS, root)
    assert fence_units.present(root) == fence_units.texts(LOGINS)
    assert stat.S_IMODE((tmp_path / "user.slice.d" / "50-nodectl-fence.conf").stat().st_mode) == 0o644
    fewer = LOGINS._replace(free=(0,))
    fence_units.write(fewer, root)
    assert fence_units.present(root) == fence_units.texts(fewer)
    (tmp_path / "user.slice.d" / ".50-nodectl-fence.conf.0123").write_text("of a command that was killed")
    fence_units.remove(root)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [own]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["user-.slice.d"]


def test_files_and_directories_of_systemds_are_on_the_disk_when_the_command_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reset of the machine leaves no empty file."""
    synced: set[int] = set()
    monkeypatch.setattr(os, "fsync", lambda fd: synced.add(os.fstat(fd).st_ino))
    fence_units.write(LOGINS, str(tmp_path))
    made = {path.stat().st_ino for path in (tmp_path, *tmp_path.rglob("*"))}
    assert made == synced
    synced.clear()
    fence_units.remove(str(tmp_path))
    assert tmp_path.stat().st_ino in synced


def test_what_every_program_opens_is_no_use_of_a_device() -> None:
    devices = [Device("gpu", 0, file="/dev/null"), Device("gpu", 1), Device("gpu", 2, file="/dev/no-such-device")]
    assert device_access.keys_by_node(devices) == {}
    if Path("/dev/kmsg").exists():
        twice = [Device("gpu", 0, file="/dev/kmsg"), Device("gpu", 1, file="/dev/kmsg")]
        assert device_access.keys_by_node(twice) == {(2, 1, 11): ["gpu:0", "gpu:1"]}


def test_only_the_systems_own_service_is_outside_and_no_group_that_a_user_names_so() -> None:
    def is_outside(place: str) -> bool:
        return foreign_look._is_elsewhere(place, "", "", ("jupyter.service", "alice"))

    assert is_outside("/system.slice/jupyter.service/kernels")
    assert not is_outside("/user.slice/user-1000.slice/user@1000.service/app.slice/jupyter.service")
    assert not is_outside("/user.slice/user-1000.slice/user@1000.service/alice")
    assert not is_outside("/user.slice/user-1000.slice/session-1.scope")
