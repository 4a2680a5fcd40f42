"""The units: systemd accepts them, and they promise what the daemon and its steps rely on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from configparser import RawConfigParser
from pathlib import Path

import pytest

from needs import lacks
from nodectl.plugin_host import INCLUDE_DIR as INCLUDE
from nodectl.spank import SLURM_VERSION

pytestmark = pytest.mark.systemd

UNITS = Path(__file__).resolve().parents[2] / "systemd"
COMMAND = Path(sys.executable).with_name("nodectl")
TASKS_INHERIT = (
    "NoNewPrivileges",
    "RestrictSUIDSGID",
    "PrivateTmp",
    "PrivateDevices",
    "PrivateMounts",
    "PrivateNetwork",
    "PrivateUsers",
    "ProtectHome",
    "ProtectSystem",
    "ProtectHostname",
    "ProtectProc",
    "ProtectControlGroups",
    "ProtectKernelTunables",
    "RestrictAddressFamilies",
    "RestrictNamespaces",
    "RestrictRealtime",
    "LockPersonality",
    "MemoryDenyWriteExecute",
    "SystemCallFilter",
    "SystemCallArchitectures",
    "CapabilityBoundingSet",
    "DevicePolicy",
    "OOMScoreAdjust",
)


def run(*argv: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)


def service() -> dict[str, str]:
    parser = RawConfigParser(strict=True)
    parser.optionxform = str  # type: ignore[assignment,method-assign] # keys keep their case
    parser.read(UNITS / "nodectld.service")
    return dict(parser["Service"])


def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    units = []
    for pattern in ("*.service", "*.socket", "*.slice"):
        for unit in UNITS.glob(pattern):
            text = unit.read_text().replace("/usr/local/bin/nodectl", str(COMMAND))
            units.append(tmp_path / unit.name)
            units[-1].write_text(text)
    assert len(units) == 4
    result = run("systemd-analyze", "verify", "--man=no", *units)
    assert (result.returncode, result.stdout + result.stderr) == (0, "")


def test_systemd_accepts_the_examples_of_units(tmp_path: Path) -> None:
    units: list[Path] = []
    for unit in (*UNITS.glob("examples/*.service"), *UNITS.glob("examples/*.timer")):
        units.append(tmp_path / unit.name)
        units[-1].write_text(unit.read_text().replace("/usr/local/bin/nodectl", str(COMMAND)))
    assert units
    result = run("systemd-analyze", "verify", "--man=no", *units)
    assert (result.returncode, result.stdout + result.stderr) == (0, "")


def test_the_journal_takes_all_that_the_service_says_and_no_flood_of_users_tasks() -> None:
    assert "\nLogRateLimitIntervalSec=0\n" in (UNITS / "nodectld.service").read_text()
    assert "\nLogRateLimit" not in (UNITS / "nodectl-steps.service").read_text()


def test_service_leaves_running_steps_alone_when_it_stops() -> None:
    unit = service()
    assert unit["KillMode"] == "process"
    assert unit["RuntimeDirectoryPreserve"] == "yes"
    assert unit["OOMPolicy"] == "continue"
    assert unit["Delegate"] == "yes"


@pytest.mark.skipif(lacks("pkg-config"), reason="no pkg-config here")
def test_plugins_compile_with_what_pkg_config_says_and_slurms_own_headers_are_left_alone(tmp_path: Path) -> None:
    told = run("pkg-config", f"--define-variable=includedir={INCLUDE}", "--cflags", UNITS / "nodectl-spank.pc")
    assert (told.returncode, told.stdout.split()) == (0, [f"-I{INCLUDE}"]), told.stderr
    source = tmp_path / "plugin.c"
    source.write_text("#include <slurm/spank.h>\nSPANK_PLUGIN(x, 1)\n")
    assert run("cc", "-shared", "-fPIC", *told.stdout.split(), "-o", tmp_path / "x.so", source).returncode == 0
    version = run("pkg-config", "--modversion", UNITS / "nodectl-spank.pc").stdout.strip()
    assert version == "{}.{:02d}.{}".format(*SLURM_VERSION)
    scripts = [(UNITS / name).read_text(encoding="ascii") for name in ("install", "uninstall")]
    assert not any("/usr/include/" in script for script in scripts)
    for path in ("/usr/local/include/nodectl", "/usr/local/share/pkgconfig/nodectl-spank.pc"):
        assert all(path in script for script in scripts)


def test_completion_is_where_shells_look_and_goes_with_the_service() -> None:
    scripts = [(UNITS / name).read_text(encoding="ascii") for name in ("install", "uninstall")]
    for path in ("bash-completion/completions/nodectl", "zsh/site-functions/_nodectl", "nodectl.fish"):
        assert all(path in script for script in scripts)


@pytest.mark.parametrize("setting", TASKS_INHERIT)
def test_service_confines_nothing_that_a_task_would_inherit(setting: str) -> None:
    assert setting not in service()


@pytest.mark.skipif(os.geteuid() != 0, reason="not root: directories get their owners")
def test_runtime_directory_is_open_to_clients_and_that_of_steps_to_nobody(tmp_path: Path) -> None:
    """Also where an admin makes them anew beside a running daemon."""
    result = run("systemd-tmpfiles", "--create", f"--root={tmp_path}", UNITS / "nodectl.tmpfiles.conf")
    assert (result.returncode, result.stderr) == (0, "")
    for directory, mode in (("run/nodectl", 0o755), ("run/nodectl/steps", 0o700)):
        status = (tmp_path / directory).stat()
        assert (status.st_uid, status.st_gid, status.st_mode & 0o7777) == (0, 0, mode)


@pytest.mark.skipif(os.geteuid() != 0, reason="not root: the group file is written")
def test_admin_group_is_made(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    result = run("systemd-sysusers", f"--root={tmp_path}", UNITS / "nodectl.sysusers.conf")
    assert result.returncode == 0, result.stderr
    assert "nodectl:" in (tmp_path / "etc/group").read_text()


@pytest.mark.parametrize("script", ["build-deb", "build-wheels", "install", "uninstall"])
def test_scripts_are_plain_shell(script: str) -> None:
    assert os.access(UNITS / script, os.X_OK)
    shell = shutil.which("dash") or "/bin/sh"
    assert run(shell, "-n", UNITS / script).returncode == 0
