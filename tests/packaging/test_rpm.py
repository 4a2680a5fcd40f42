"""The RPM as rpmbuild makes it here. No machine with RPMs has installed it yet."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from lint.sources import ROOT

pytestmark = [
    pytest.mark.packages,
    pytest.mark.skipif(shutil.which("rpmbuild") is None, reason="no rpmbuild here"),
]


def run(*words: str | Path) -> str:
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, timeout=500, env={**os.environ, "NODECTL_NODEPS": "1"}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_rpm_is_built_and_has_command_units_manual_and_what_stays_on_an_upgrade(tmp_path: Path) -> None:
    run(ROOT / "systemd/build-rpm", tmp_path)
    (package,) = tmp_path.glob("nodectl-*.rpm")
    files = set(run("rpm", "-qpl", package).split())
    modules = "/usr/lib/nodectl/site-packages"
    assert {
        "/usr/bin/nodectl", "/usr/lib/systemd/system/nodectld.service", "/usr/share/man/man1/nodectl-run.1",
        f"{modules}/nodectl/kernel/_kernel.abi3.so", f"{modules}/nodectl/cli/__pycache__/run.cpython-311.pyc",
    } <= {name.removesuffix(".gz") for name in files}  # fmt: skip
    assert set(run("rpm", "-qp", "--configfiles", package).split()) == {
        "/etc/nodectl/nodectl.toml", "/etc/nodectl/plugstack.conf",
    }  # fmt: skip
    assert ".so" not in run("rpm", "-qp", "--provides", package)
