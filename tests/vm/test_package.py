"""The Debian package's life on this machine, in the order of the tests: refused beside an installation, installed,
upgraded under running steps, removed, purged.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from vm import service
from vm.host.package import NEWER
from vm.service import Sleeper

pytestmark = pytest.mark.deb

RING = Path.cwd()
CONFFILES = (service.CONFIG, Path("/etc/nodectl/plugstack.conf"))
HISTORY = Path("/var/lib/nodectl/history.db")
STATE = "dpkg-query", "--show", "--showformat", "${db:Status-Status}", "nodectl"
# What bash does at a TAB.
COMPLETION = """
source /usr/share/bash-completion/bash_completion
_completion_loader nodectl
COMP_LINE='nodectl ru' COMP_POINT=10
_nodectl nodectl ru nodectl
echo "${COMPREPLY[@]}"
"""
PYTHON_PATH = ["/usr/lib/nodectl/site-packages", "/usr/lib/python3/dist-packages"]  # that of the installed command
# Where the machine's programs keep what they know; the ring's own files are elsewhere.
PLACES = ("/etc", "/opt", "/run", "/usr", "/var")
others: set[str] = set()  # what is there before the package


def dpkg(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["dpkg", *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=390,
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})  # fmt: skip


def succeeds(*words: str) -> str:
    done = dpkg(*words)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}{service.logged()[-2000:]}"
    return done.stdout + done.stderr


def version() -> str:
    return service.nodectl("--version").split()[1]


def named() -> set[str]:
    """The files that have our name in theirs."""
    return set(service.run("find", *PLACES, "-name", "*nodectl*").stdout.splitlines())


def test_package_is_refused_beside_an_installation_which_goes_on_to_serve() -> None:
    refused = dpkg("--install", str(RING / "nodectl.deb"))
    assert refused.returncode != 0
    assert "systemd/uninstall" in refused.stderr
    assert service.run(*STATE).stdout != "installed"
    assert service.nodectl("run", "echo", "served", user="alice") == "served\n"


def test_package_is_installed_and_serves_with_its_manual_and_completion() -> None:
    assert service.run(str(RING / "systemd/uninstall"), "--purge").returncode == 0
    assert service.run("getent", "group", "nodectl").returncode == 2
    assert not any(Path(path).exists() for path in ("/etc/nodectl", "/opt/nodectl", "/run/nodectl", "/var/lib/nodectl"))
    others.update(named())
    succeeds("--install", str(RING / "nodectl.deb"))
    assert service.nodectl("run", "id", "-un", user="alice") == "alice\n"
    assert service.nodectl("doctor").splitlines()[-1].endswith(" 0 warn, 0 fail")
    assert "nodectl run" in service.run("man", "--pager=cat", "nodectl-run", user="alice").stdout
    assert service.run("bash", "-c", COMPLETION, user="alice").stdout.split() == ["run"]
    assert service.shown("ControlGroup") == service.GROUP
    refused = service.run(str(RING / "systemd/install"))
    assert (refused.returncode, "Debian package" in refused.stderr) == (1, True)


def test_users_have_the_page_and_top_without_installing_anything() -> None:
    page = service.start("--listen", "unix:/home/alice/page", command="web", user="alice")
    try:
        assert page.stdout is not None
        assert page.stdout.readline().startswith("http://localhost:8080/#"), page
    finally:
        page.terminate()
        page.communicate(timeout=120)
    code = f"import sys; sys.path += {PYTHON_PATH}; import nodectl.view.top.app"
    done = service.run("/usr/bin/python3", "-IS", "-c", code, user="alice")
    assert (done.returncode, done.stderr) == (0, "")


def test_upgrade_is_not_noticed_by_steps_and_keeps_what_was_configured() -> None:
    for path in CONFFILES:
        path.write_text(path.read_text() + "# kept\n")
    before, daemon = version(), service.main_pid()
    step = Sleeper("alice", 3)
    runner, task = step.runner(), step.task()
    # Commands of a user who knows of no upgrade.
    script = "until [ -e stop ]; do nodectl run true || { echo failed; break; }; sleep 0.2; done"
    busy = subprocess.Popen(["runuser", "--login", "--command", script, "bob"], stdout=subprocess.PIPE, text=True)
    try:
        succeeds("--force-confold", "--install", str(RING / "newer.deb"))
    finally:
        Path("/home/bob/stop").touch()
        said, _ = busy.communicate(timeout=120)
    assert said == ""
    assert before != version() == NEWER
    assert service.main_pid() != daemon
    assert (step.runner(), step.task()) == (runner, task)
    assert step.let_go() == (3, "ran\n", "")
    assert service.record(step.job)["exit_status"] == 3
    assert all(path.read_text().endswith("# kept\n") for path in CONFFILES)


def test_removed_package_ends_steps_and_keeps_configuration_and_history() -> None:
    step = Sleeper("alice")
    pids = (step.task(), step.runner(), service.main_pid(), service.forkserver())
    succeeds("--remove", "nodectl")
    service.assert_gone(*pids)
    service.finished(step.client)
    assert not Path("/usr/lib/nodectl").exists()
    assert not Path("/run/nodectl/nodectl.sock").exists()
    assert all(path.exists() for path in (*CONFFILES, HISTORY))


def test_purged_package_leaves_nothing() -> None:
    said_yes = "nodectl nodectl/remove-state boolean true\n"
    subprocess.run(["debconf-set-selections"], input=said_yes, text=True, check=True)
    succeeds("--purge", "nodectl")
    left = named() - others
    assert not left, "\n".join(sorted(left))
    assert service.run("getent", "group", "nodectl").returncode == 2
    listed = service.systemctl("list-units", "--all", "--plain", "--no-legend", "nodectl*")
    assert re.findall(r"^\S+", listed, re.MULTILINE) == []
    assert not list(service.CGROUPS.rglob("*nodectl*"))
    assert "nodectl" not in service.run("debconf-show", "nodectl").stdout
