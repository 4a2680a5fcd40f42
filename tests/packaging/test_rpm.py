"""The RPM as rpmbuild makes it here. No machine with RPMs has installed it yet."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from lint.sources import ROOT
from needs import lacks

pytestmark = [
    pytest.mark.packages,
    pytest.mark.skipif(lacks("rpmbuild"), reason="no rpmbuild here"),
]


def run(*words: str | Path) -> str:
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, timeout=500, env={**os.environ, "NODECTL_NODEPS": "1"}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


MACROS = {
    "systemd_post": "for the first time: preset %{*}",
    "systemd_preun": "at the last: disable --now %{*}",
    "systemd_postun_with_restart": "after an upgrade: restart if it runs %{*}",
}


def test_its_scriptlets_are_those_of_the_distribution() -> None:
    spec = str(ROOT / "systemd/nodectl.spec")
    defined = [word for name, body in MACROS.items() for word in ("--define", f"{name}() {body}")]
    text = run("rpmspec", "-P", "--define", "of_package 1", *defined, spec)
    for said in (
        "preset nodectld.socket nodectld.service",
        "disable --now nodectld.service nodectld.socket nodectl-steps.service",
        "restart if it runs nodectld.service",
    ):
        assert said in text, text
    assert "systemctl restart" not in text, "an upgrade does not start what its owner has stopped"
    assert "%systemd" not in run("rpmspec", "-P", "--define", "of_package 1", spec), "where there are no such macros"


def test_it_is_for_the_python_that_it_was_compiled_for() -> None:
    spec = str(ROOT / "systemd/nodectl.spec")
    needs = run("rpmspec", "-q", "--requires", "--define", "of_package 1", spec).splitlines()
    version = subprocess.run(["/usr/bin/python3", "-V"], capture_output=True, text=True, check=True).stdout
    major, minor = version.split()[1].split(".")[:2]
    assert f"python(abi) = {major}.{minor}" in needs


def test_rpm_is_built_and_has_command_units_manual_and_what_stays_on_an_upgrade(tmp_path: Path) -> None:
    run(ROOT / "systemd/build-rpm", tmp_path)
    (package,) = tmp_path.glob("nodectl-*.rpm")
    files = set(run("rpm", "-qpl", package).split())
    modules = "/usr/lib/nodectl/site-packages"
    assert {
        "/usr/bin/nodectl", "/usr/lib/systemd/system/nodectld.service", "/usr/share/man/man1/nodectl-run.1",
        "/usr/lib/systemd/system-preset/80-nodectl.preset", f"{modules}/nodectl/kernel/_kernel.abi3.so",
        f"{modules}/nodectl/cli/__pycache__/run.cpython-311.pyc",
    } <= {name.removesuffix(".gz") for name in files}  # fmt: skip
    assert set(run("rpm", "-qp", "--configfiles", package).split()) == {
        "/etc/nodectl/nodectl.toml", "/etc/nodectl/plugstack.conf",
    }  # fmt: skip
    assert ".so" not in run("rpm", "-qp", "--provides", package)
    assert_top_and_web_find_all_that_they_need(package, tmp_path)


def assert_top_and_web_find_all_that_they_need(package: Path, scratch: Path) -> None:
    """Import them as the installed command does, with the package's and the distribution's libraries alone."""
    run("rpm2archive", package)  # makes the file that the next line reads
    run("tar", "-xf", f"{package}.tgz", "-C", scratch)
    places = [str(scratch / "usr/lib/nodectl/site-packages"), "/usr/lib/python3/dist-packages"]
    words = f"import sys; sys.path += {places}; import nodectl.view.top.app, nodectl.view.web.server"
    run("/usr/bin/python3", "-IS", "-c", words)
