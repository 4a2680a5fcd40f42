"""What keeps users out of the service, and the service's own confinement, as systemd has set them up."""

from __future__ import annotations

from pathlib import Path

import pytest

from vm import service
from vm.service import SOCKET_UNIT, STEPS_UNIT, UNIT, Sleeper

SOCKET = Path("/run/nodectl/nodectl.sock")
HISTORY = Path("/var/lib/nodectl/history.db")
DIRECTORIES = {"/run/nodectl": 0o755, "/run/nodectl/steps": 0o700, "/var/lib/nodectl": 0o755, "/etc/nodectl": 0o755}


@pytest.mark.parametrize("directory", DIRECTORIES)
def test_directory_of_the_service_is_roots_and_nobody_else_can_write_there(directory: str) -> None:
    status = Path(directory).stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o7777) == (0, 0, DIRECTORIES[directory])
    assert "Permission denied" in service.run("touch", f"{directory}/file", user="alice").stderr


def test_anybody_may_connect_to_the_socket_and_nobody_can_put_another_in_its_place() -> None:
    status = SOCKET.stat()
    assert (status.st_uid, status.st_mode & 0o777) == (0, 0o666)
    for user in ("alice", "bob"):
        assert service.nodectl("run", "id", "-un", user=user) == f"{user}\n"
        assert service.run("mv", str(SOCKET), "/tmp/stolen", user=user).returncode != 0


def test_users_read_neither_the_history_nor_the_files_of_steps() -> None:
    step = Sleeper("bob")
    for path in (HISTORY, *Path("/run/nodectl/steps").glob(f"{step.job}.0.[jt]*")):
        assert path.stat().st_mode & 0o077 == 0, path
        assert service.run("cat", str(path), user="alice").returncode != 0
    assert step.let_go()[0] == 0


def test_users_cannot_manage_the_units() -> None:
    for verb, unit in (("stop", UNIT), ("restart", STEPS_UNIT), ("stop", SOCKET_UNIT)):
        assert service.run("systemctl", "--no-ask-password", verb, unit, user="alice").returncode != 0
        assert service.is_active(unit)


def test_service_has_what_it_needs_and_what_tasks_inherit_is_left_open() -> None:
    status = service.status_of(Path(f"/proc/{service.main_pid()}/status").read_text())
    own = service.status_of(Path("/proc/self/status").read_text())
    assert status["Umask"] == "0022"
    for what in ("CapEff", "CapBnd", "NoNewPrivs", "Seccomp"):
        assert status[what] == own[what], what
    for name, value in {"KeyringMode": "private", "Delegate": "yes", "OOMPolicy": "continue", "LimitNOFILE": "524288",
                        "KillMode": "process", "TasksMax": "infinity", "ProtectSystem": "no", "PrivateTmp": "no",
                        "WatchdogUSec": "30s"}.items():  # fmt: skip
        assert service.shown(name) == value, name
