"""Ways to come in, with and without a job, by a real sshd, PAM and systemd: where what is started there is, and that it
ends with the job.
"""

from __future__ import annotations

import contextlib
import functools
import pwd
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodectl.launch.cgroup.tree import LOGINS
from vm import service
from vm.service import Sleeper, wait_until

pytestmark = pytest.mark.all

SERVICE = 'login_entry = "join"\nadmin_group = "games"\n'
PAM = Path("/etc/pam.d/sshd")
INCLUDE = "@include common-session\n"
GUIDE = (Path(__file__).parents[2] / "docs/guides/login-sessions.md").read_text(encoding="utf-8")
LINE, SKIPS_ROOT, REFUSES = (
    f"{line}\n" for line in re.findall(r"^ +(session .*--pam|session .*uid = 0)$", GUIDE, re.M)
)
KEY = Path("/root/.ssh/of-a-test")
SFTP = Path("/usr/local/sbin/sftp-of-a-test")
SERVER = "/usr/lib/openssh/sftp-server"
SUDOERS = Path("/etc/sudoers.d/of-a-test")
USERS = ("carol", "dora")
TELL = "sed -n s/^0:://p /proc/self/cgroup"
# Each way leaves the cgroup of what it started in ~/place; {0} is the user.
WAYS = {
    "ssh": f"ssh {{0}}@localhost '{TELL} >place'",
    "scp": "scp /etc/hostname {0}@localhost:copied",
    "sftp": "echo ls | sftp -b - {0}@localhost",
    "tmux": f"ssh -tt {{0}}@localhost 'tmux new-session -d \"{TELL} >place; exec sleep 1000\"; sleep 1'",
    "su": f"ssh {{0}}@localhost 'sudo su {{0}} -c \"{TELL} >place\"'",
    "sudo": f"ssh {{0}}@localhost 'sudo -u {{0}} sh -c \"{TELL} >place\"'",
}
OPTIONS = f"-i {KEY} -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -o BatchMode=yes"


@pytest.fixture(scope="module", autouse=True)
def sshd() -> Iterator[None]:
    """sshd with the guide's line, users with a key and sudo; all as it was afterwards."""
    config, pam = Path("/etc/ssh/sshd_config"), PAM.read_text()
    configured = config.read_text()
    assert (configured.count(SERVER), pam.count(INCLUDE)) == (1, 1)
    KEY.parent.mkdir(mode=0o700, exist_ok=True)
    service.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(KEY))
    SFTP.write_text(f"#!/bin/sh\n{TELL} >~/place\nexec {SERVER}\n")
    SFTP.chmod(0o755)
    for user in USERS:
        service.run("useradd", "--create-home", "--shell", "/bin/bash", user)
        _authorize(Path(f"/home/{user}"), user)
    _authorize(Path("/root"), "root")
    SUDOERS.write_text("".join(f"{user} ALL=(ALL) NOPASSWD: ALL\n" for user in USERS))
    config.write_text(configured.replace(SERVER, str(SFTP)))
    PAM.write_text(pam.replace(INCLUDE, INCLUDE + LINE))
    service.systemctl("restart", "ssh")
    yield
    service.systemctl("stop", "ssh")
    PAM.write_text(pam)
    config.write_text(configured)
    for path in (SUDOERS, SFTP, KEY, KEY.with_suffix(".pub"), Path("/root/.ssh/authorized_keys")):
        path.unlink(missing_ok=True)
    for user in USERS:
        service.run("systemctl", "stop", f"user-{pwd.getpwnam(user).pw_uid}.slice")
        wait_until(functools.partial(_has_left, user), f"{user} has left")
        service.run("userdel", "--remove", user)


def _has_left(user: str) -> bool:
    return service.run("pgrep", "-u", user).returncode == 1


def _authorize(home: Path, user: str) -> None:
    keys = home / ".ssh/authorized_keys"
    service.run("install", "-d", "-m", "700", "-o", user, "-g", user, str(keys.parent))
    service.run("install", "-m", "600", "-o", user, "-g", user, str(KEY.with_suffix(".pub")), str(keys))


def come_in(way: str, user: str) -> subprocess.CompletedProcess[str]:
    """Come in this way, from root's shell."""
    line = re.sub(r"\b(ssh|scp|sftp) ", rf"\1 {OPTIONS} ", WAYS.get(way, way).format(user))
    return service.run("sh", "-c", line)


def place(way: str, user: str) -> str:
    """The cgroup of what is started there."""
    told = Path(f"/home/{user}/place")
    told.unlink(missing_ok=True)
    done = come_in(way, user)
    assert done.returncode == 0, done
    wait_until(lambda: told.exists() and told.read_text().endswith("\n"), "it has told its place")
    return told.read_text().strip()


def logins(step: Sleeper) -> str:
    """The cgroup of sessions in its job."""
    return f"{service.STEPS_GROUP}/job_{step.job}/step_0/user/{LOGINS}"


@contextlib.contextmanager
def job(user: str) -> Iterator[Sleeper]:
    step = Sleeper(user)
    try:
        yield step
    finally:
        service.run("nodectl", "cancel", str(step.job))
        service.finished(step.client)


@pytest.mark.parametrize("way", WAYS)
def test_a_user_with_a_job_comes_into_it(way: str) -> None:
    with job("carol") as step:
        found = place(way, "carol")
        if way == "su":  # pam_systemd makes another session for what is in none of systemd's
            assert found.startswith("/user.slice/user-")
        else:
            assert found == logins(step)
    service.wait_until(lambda: not service.leftovers(), "nothing of the job is left, tmux neither")


@pytest.mark.parametrize("way", WAYS)
def test_a_user_without_a_job_comes_into_a_session_of_systemd(way: str) -> None:
    with job("carol"):
        assert place(way, "dora").startswith("/user.slice/user-")


def test_a_session_has_its_runtime_directory_and_is_killed_with_the_job_and_sshd_is_not() -> None:
    listener = service.shown("MainPID", "ssh")
    with job("carol") as step:
        words = f"ssh {OPTIONS} carol@localhost 'echo $XDG_RUNTIME_DIR; ls -d $XDG_RUNTIME_DIR; exec sleep 1000'"
        session = subprocess.Popen(["sh", "-c", words], stdout=subprocess.PIPE, text=True)
        assert session.stdout is not None
        assert session.stdout.readline() == session.stdout.readline() != "\n"
        assert "login sessions" in service.nodectl("show", str(step.job), user="carol")
        service.nodectl("cancel", str(step.job), user="carol")
        assert session.wait(120) == 255, "the connection is closed"
    assert service.shown("MainPID", "ssh") == listener
    assert place("ssh", "carol").startswith("/user.slice/")


def test_a_session_tells_a_shell_the_variables_of_its_job() -> None:
    with job("carol") as step:
        line = 'eval "$(nodectl login --export)"; nodectl run sh -c "echo \\$SLURM_JOB_ID"'
        assert come_in(f"ssh {{0}}@localhost '{line}'", "carol").stdout == f"{step.job}\n"


@service.configured('login_entry = "require"')
def test_on_a_machine_for_jobs_alone_a_user_without_one_is_refused_and_root_is_not() -> None:
    pam = PAM.read_text()
    PAM.write_text(pam.replace(LINE, SKIPS_ROOT + REFUSES))
    try:
        for way in ("ssh", "scp", "sftp"):
            assert come_in(way, "dora").returncode != 0
        assert "no job of yours runs here" in come_in("ssh {0}@localhost", "dora").stdout
        assert come_in("ssh {0}@localhost true", "root").returncode == 0
        with job("dora") as step:
            assert place("ssh", "dora") == logins(step)
    finally:
        PAM.write_text(pam)


def test_a_service_that_is_stopped_or_hangs_holds_up_no_login() -> None:
    with job("carol"):
        service.systemctl("stop", service.SOCKET_UNIT, service.UNIT)
        try:
            assert place("ssh", "carol").startswith("/user.slice/")
        finally:
            service.restore(SERVICE)
        service.systemctl("kill", "--kill-whom=main", "--signal=STOP", service.UNIT)
        try:
            assert place("ssh", "carol").startswith("/user.slice/")
        finally:
            service.systemctl("kill", "--kill-whom=main", "--signal=CONT", service.UNIT)


def test_admins_are_left_alone() -> None:
    service.run("usermod", "--append", "--groups", "games", "carol")
    try:
        with job("carol"):
            assert place("ssh", "carol").startswith("/user.slice/")
    finally:
        service.run("gpasswd", "--delete", "carol", "games")


def test_doctor_finds_the_line_in_its_place_and_tells_of_a_wrong_one() -> None:
    def said() -> str:
        return service.run("nodectl", "doctor").stdout

    assert f"{PAM} calls nodectl" in said()
    pam = PAM.read_text()
    try:
        PAM.write_text(pam.replace(LINE, "") + LINE)
        assert "LD_PRELOAD" in said()
        PAM.write_text(LINE + pam.replace(LINE, ""))
        assert "takes sessions out of their jobs" in said()
        with job("carol"):
            assert place("ssh", "carol").startswith("/user.slice/"), "and nothing is moved that is in sshd's unit"
    finally:
        PAM.write_text(pam)
