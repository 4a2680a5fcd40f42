"""Whether jobs' private directories can fill the file system of the queue."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodectl.cli.checks import container as checks
from nodectl.cli.checks.check import OK, WARN
from nodectl.launch.container import disk_room
from nodectl.model.config import Config
from nodectl.service.config_file import reader


def configured(tmp_path: Path, **keys: object) -> Config:
    return reader.build(
        {"job_container_type": "job_container/namespace", "state_dir": str(tmp_path / "not" / "yet"), **keys}
    )


def test_private_directories_beside_the_queue_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_room, "_has_quotas", lambda _: False)
    config = configured(tmp_path)
    said = disk_room.complaint(config)
    assert said.startswith(
        f"{tmp_path}/not/yet/containers, where jobs store their own /tmp and /var/tmp, and state_dir"
    )
    check = checks.room_of_state(config)
    assert (check.level, check.detail) == (WARN, said)
    assert "container_base_path" in check.advice


@pytest.mark.parametrize(
    "keys",
    [
        {"container_base_path": "/proc"},  # another file system
        {"container_dirs": ["/tmp:tmpfs,size=1G", "/scratch:ro", "/dev/shm"]},
        {"job_container_type": "job_container/none"},
    ],
)
def test_what_cannot_fill_the_disk_of_the_queue_is_not_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: dict[str, object]
) -> None:
    monkeypatch.setattr(disk_room, "_has_quotas", lambda _: False)
    config = configured(tmp_path, **keys)
    assert disk_room.complaint(config) == ""
    assert checks.room_of_state(config).level == OK


@pytest.mark.parametrize(
    ("option", "bounds"), [("usrquota", True), ("usrjquota=aquota.user", True), ("noquota", False)]
)
def test_quotas_for_users_are_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str, *, bounds: bool
) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(f"30 1 8:1 / / rw - ext4 /dev/x rw,{option}\n31 1 8:2 / /b rw - ext4 /dev/y rw,usrquota\n")
    monkeypatch.setattr("builtins.open", lambda *_, **__: table.open(encoding="utf-8"))
    assert disk_room._has_quotas(8 << 8 | 1) is bounds
