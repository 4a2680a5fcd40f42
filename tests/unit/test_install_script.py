"""systemd/install and systemd/uninstall, as far as that can be seen without being root on a machine of their own."""

from __future__ import annotations

import fcntl
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


def run(script: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a script as a user who can change nothing of the machine, should the script not stop where it has to."""
    who = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
    settings = {"PATH": os.environ["PATH"], **environment}
    return subprocess.run([script, *words], env=settings, cwd="/", capture_output=True, text=True, check=False, **who)  # type: ignore[call-overload,no-any-return]


def made(directory: Path, scripts: dict[str, str]) -> Path:
    """Write programs that any user can run into the directory, and return it."""
    directory.mkdir(exist_ok=True)
    open_to_all(directory)
    for name, text in scripts.items():
        (directory / name).write_text(text)
        (directory / name).chmod(0o755)
    return directory


@pytest.mark.parametrize("script", ["install", "uninstall"])
def test_help_is_printed_and_nothing_else_is_done(tmp_path: Path, script: str) -> None:
    copies = made(tmp_path, {script: (ROOT / "systemd" / script).read_text()})
    for words in (["--help"], ["-h"], ["--purge", "--help"] if script == "uninstall" else ["x.whl", "--help"]):
        done = run(copies / script, *words)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith(f"usage: systemd/{script} [")


@pytest.mark.parametrize(
    ("script", "words", "reason"),
    [
        ("install", ["--purge"], "unknown option --purge"),
        ("install", ["wheel"], "not a wheel: 'wheel'"),
        ("install", [""], "not a wheel: ''"),
        ("install", ["/nowhere/nodectl.whl"], "no file /nowhere/nodectl.whl"),
        ("install", ["a.whl", "b.whl"], "one wheel at most, not 2"),
        ("uninstall", ["purge"], "unknown word purge; nothing was removed"),
        ("uninstall", ["--purge", "--dry-run"], "unknown word --dry-run; nothing was removed"),
    ],
)
def test_unknown_words_are_refused_in_one_line(tmp_path: Path, script: str, words: list[str], reason: str) -> None:
    copies = made(tmp_path, {script: (ROOT / "systemd" / script).read_text()})
    done = run(copies / script, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"{script}: {reason}")
    assert done.stderr.count("\n") == 1


def test_old_python_is_refused_before_anything_is_installed(tmp_path: Path) -> None:
    text = (ROOT / "systemd/install").read_text()
    old = '#!/bin/sh\n[ "$1" = --version ] && echo Python 3.10.12\n'
    programs = made(tmp_path, {"id": "#!/bin/sh\necho 0\n", "python3": old})
    made(tmp_path, {"install": text.replace("=/usr/bin/python3\n", f"={programs}/python3\n")})
    done = run(tmp_path / "install", PATH=f"{programs}:{os.environ['PATH']}")
    expected = f"install: nodectl needs Python 3.11 or later, and this is Python 3.10.12 ({programs}/python3)\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", expected)


@pytest.mark.parametrize(("words", "removed"), [([], False), (["--purge"], True)])
def test_group_and_settings_of_units_go_with_a_purge_alone(tmp_path: Path, words: list[str], removed: bool) -> None:
    log = '#!/bin/sh\necho "${0##*/} $*" >>"$ASKED"\n'
    changes = ("rm", "rmdir", "systemctl", "umount", "groupdel", "getent")
    programs = made(tmp_path / "bin", {"id": "#!/bin/sh\necho 0\n", **dict.fromkeys(changes, log)})
    copies = made(tmp_path, {"uninstall": (ROOT / "systemd/uninstall").read_text()})
    asked = tmp_path / "asked"
    asked.touch()
    asked.chmod(0o666)
    done = run(copies / "uninstall", *words, PATH=f"{programs}:{os.environ['PATH']}", ASKED=str(asked))
    assert (done.returncode, done.stderr) == (0, "")
    lines = asked.read_text().splitlines()
    assert "rm -rf /opt/nodectl" in lines
    for line in ("groupdel nodectl", "rm -rf /etc/nodectl", "rm -rf /var/lib/nodectl"):
        assert (line in lines) == removed
    assert any("/nodectl-steps.service.d" in line for line in lines) == removed


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
    done = run(scripts / "install", PATH=str(programs), ASKED=str(asked))
    assert done.returncode == 1
    assert {"install", "gcc", "man-db", headers} <= set(asked.read_text().split())
    assert done.stdout.startswith("install: installing system packages: ")


def test_machine_without_systemd_gets_the_group_and_is_told_how_to_start_the_service(tmp_path: Path) -> None:
    open_to_all(tmp_path)
    open_to_all(shutil.copytree(ROOT / "systemd", tmp_path / "systemd"))
    text = (ROOT / "systemd/install").read_text()
    for directory in ("/opt/nodectl", "/usr/local", "/etc", "/run/systemd"):
        text = text.replace(directory, f"{tmp_path}{directory}")
    programs = made(tmp_path / "systemd", {"install": text}).parent / "bin"
    log = '#!/bin/sh\necho "${0##*/} $*" >>"$ASKED"\n'
    made(programs, {"groupadd": log, "getent": f"#!/bin/sh\n{ABSENT}\n", "id": "#!/bin/sh\necho 0\n"})
    for name in ("sh", "dirname", "readlink", "mktemp", "rm", "cat", "mkdir", "ln", "install", "chmod"):
        (programs / name).symlink_to(f"/usr/bin/{name}")
    (tmp_path / "opt/nodectl").mkdir(parents=True)
    for directory in ("etc", "usr"):
        (tmp_path / directory).mkdir()
        (tmp_path / directory).chmod(0o777)
    made(tmp_path / "opt/nodectl/bin", {"pip": log, "python3": log, "nodectl": "#!/bin/sh\necho /include\n"})
    (wheel := tmp_path / "nodectl.whl").touch()
    (asked := tmp_path / "asked").touch()
    asked.chmod(0o666)
    done = run(tmp_path / "systemd/install", str(wheel), PATH=str(programs), ASKED=str(asked))
    assert (done.returncode, done.stderr) == (0, "")
    assert "groupadd --system nodectl" in asked.read_text().splitlines()
    assert done.stdout.endswith(f"start the service yourself, as root: {tmp_path}/usr/local/bin/nodectl daemon\n")


def test_running_service_without_systemd_is_not_uninstalled(tmp_path: Path) -> None:
    open_to_all(tmp_path)
    text = (ROOT / "systemd/uninstall").read_text()
    for path in ("/run/nodectl", "/run/systemd"):
        text = text.replace(path, f"{tmp_path}{path}")
    log = '#!/bin/sh\necho "${0##*/} $*" >>"$ASKED"\n'
    programs = made(tmp_path / "bin", {"id": "#!/bin/sh\necho 0\n", "rm": log, "rmdir": log})
    copies = made(tmp_path, {"uninstall": text})
    (tmp_path / "run/nodectl").mkdir(parents=True)
    open_to_all(tmp_path / "run/nodectl")
    (asked := tmp_path / "asked").touch()
    asked.chmod(0o666)
    with (tmp_path / "run/nodectl/lock").open("w") as lock:
        (tmp_path / "run/nodectl/lock").chmod(0o666)
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = run(copies / "uninstall", PATH=f"{programs}:{os.environ['PATH']}", ASKED=str(asked))
        assert (done.returncode, done.stdout, asked.read_text()) == (1, "", "")
        assert "the service runs: end it first" in done.stderr
    done = run(copies / "uninstall", PATH=f"{programs}:{os.environ['PATH']}", ASKED=str(asked))
    assert (done.returncode, done.stderr) == (0, "")
    assert "rm -rf /opt/nodectl" in asked.read_text().splitlines()
