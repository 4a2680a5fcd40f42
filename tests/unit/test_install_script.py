"""systemd/install on a machine that has nothing but python3, as far as that can be seen without being root on one."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from directories import open_to_all

ROOT = Path(__file__).resolve().parents[2]
NOBODY = 65534
ABSENT = "exit 1"
# It thinks that it is root; whatever it does besides is refused.
STUBS = {"id": "echo 0", "dpkg-query": ABSENT, "rpm": ABSENT, "sleep": ":"}
REFUSES = 'case "$*" in *update*) ;; *) echo "$*" >>"$ASKED"; exit 1 ;; esac'


@pytest.mark.parametrize(("installer", "headers"), [("apt-get", "python3-dev"), ("dnf", "python3-devel")])
def test_what_a_bare_machine_lacks_is_asked_of_its_distribution_before_anything_else(
    tmp_path: Path, installer: str, headers: str
) -> None:
    open_to_all(tmp_path)
    programs, scripts = tmp_path / "bin", tmp_path / "systemd"
    programs.mkdir()
    scripts.mkdir()
    for name in ("install", "distribution"):
        shutil.copy(ROOT / "systemd" / name, scripts)
    for name in ("sh", "dirname", "readlink", "mktemp", "rm", "cat", "env", "grep"):
        (programs / name).symlink_to(f"/usr/bin/{name}")
    for name, text in {**STUBS, installer: REFUSES}.items():
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    asked = tmp_path / "asked"
    asked.touch()
    asked.chmod(0o666)
    who = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
    words = {"PATH": str(programs), "ASKED": str(asked)}
    done = subprocess.run([scripts / "install"], env=words, cwd="/", capture_output=True, text=True, check=False, **who)  # type: ignore[call-overload]
    assert done.returncode == 1
    assert {"install", "gcc", "man-db", headers} <= set(asked.read_text().split())
    assert done.stdout.startswith("install: installing system packages: ")
