"""The helper of PAM decides alone what needs no service, and believes no variable of the user's."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nodectl.client import pam_session
from nodectl.client.command import Failed

HANGS = """
import pwd, signal, sys, time
from types import SimpleNamespace
from nodectl.client import pam_session

def hangs(_name):  # as a function of the C library's that waits for a server, whatever signals come
    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, signal.NSIG))
    time.sleep(1000)

pwd.getpwnam = hangs
pam_session._SECONDS = 1
values = SimpleNamespace(login_entry="join", login_when_down=sys.argv[1], admin_group="4711", socket="/none")
pam_session.configured = lambda _path: values
sys.exit(pam_session.begin(SimpleNamespace(config=None, socket=None)))
"""
PATIENCE = 60  # seconds
USER = SimpleNamespace(pw_name="ann", pw_uid=1001, pw_gid=1001)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A session of ann's begins: the uids for which the service is asked, which answers that a job runs."""
    found: list[int] = []

    def joined(_: object, uid: int) -> dict[str, object]:
        found.append(uid)
        return {"job": 7, "why": ""}

    monkeypatch.setattr(os, "environ", {"PAM_TYPE": "open_session", "PAM_SERVICE": "sshd", "PAM_USER": "ann"})
    monkeypatch.setattr(pwd, "getpwnam", lambda _: USER)
    monkeypatch.setattr(os, "getgrouplist", lambda *_: [1001])
    monkeypatch.setattr(pam_session, "_joined", joined)
    configured(monkeypatch)
    return found


def configured(monkeypatch: pytest.MonkeyPatch, **changes: object) -> list[str | None]:
    """The configuration as it is read, and the paths at which it was sought."""
    paths: list[str | None] = []
    values = {"login_entry": "join", "login_when_down": "allow", "admin_group": "4711", "socket": "/none", **changes}

    def read(path: str | None) -> SimpleNamespace:
        paths.append(path)
        return SimpleNamespace(**values)

    monkeypatch.setattr(pam_session, "configured", read)
    return paths


def begin(config: str | None = None) -> int:
    settings: Any = SimpleNamespace(config=config, socket=None)
    return pam_session.begin(settings)


def test_a_session_is_told_of_its_job(asked: list[int], capfd: pytest.CaptureFixture[str]) -> None:
    assert begin() == 0
    assert asked == [1001]
    assert "job 7" in capfd.readouterr().out


@pytest.mark.parametrize(
    "variables",
    [{"PAM_TYPE": "close_session"}, {"PAM_TYPE": "account"}, {"PAM_SERVICE": "systemd-user"}, {"PAM_USER": "root"}],
)
def test_what_is_no_session_of_a_user_asks_nothing(asked: list[int], variables: dict[str, str]) -> None:
    os.environ.update(variables)
    assert (begin(), asked) == (0, [])


def test_other_names_of_root_and_admins_are_left_alone(asked: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    configured(monkeypatch, login_entry="require", login_when_down="refuse")
    monkeypatch.setattr(pwd, "getpwnam", lambda _: SimpleNamespace(**{**vars(USER), "pw_uid": 0}))
    assert (begin(), asked) == (0, [])
    monkeypatch.setattr(pwd, "getpwnam", lambda _: USER)
    monkeypatch.setattr(os, "getgrouplist", lambda *_: [1001, 4711])
    assert (begin(), asked) == (0, [])


def test_a_configuration_that_cannot_be_read_locks_no_user_out(
    asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: object) -> None:
        raise Failed("no TOML")

    monkeypatch.setattr(pam_session, "configured", fails)
    assert (begin(), asked) == (0, [])


@pytest.mark.parametrize(("entry", "status"), [("join", 0), ("require", 1)])
def test_only_a_machine_that_is_for_jobs_refuses_a_user_without_one(
    asked: list[int], monkeypatch: pytest.MonkeyPatch, entry: str, status: int
) -> None:
    del asked
    configured(monkeypatch, login_entry=entry)
    monkeypatch.setattr(pam_session, "_joined", lambda *_: {"job": 0, "why": "no job of yours runs here"})
    assert begin() == status


@pytest.mark.parametrize(("rule", "status"), [("allow", 0), ("refuse", 1)])
@pytest.mark.parametrize("error", [ConnectionRefusedError("nothing listens"), KeyError("job")])
def test_where_the_service_fails_the_rule_of_the_owner_holds(
    asked: list[int], monkeypatch: pytest.MonkeyPatch, rule: str, status: int, error: Exception
) -> None:
    def fails(*_: object) -> None:
        raise error

    del asked
    configured(monkeypatch, login_when_down=rule)
    monkeypatch.setattr(pam_session, "_joined", fails)
    assert begin() == status


def test_a_variable_names_no_configuration(asked: list[int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """pam_env may have read it from a file of the user's."""
    del asked
    paths = configured(monkeypatch)
    os.environ["NODECTL_CONFIG"] = str(tmp_path / "theirs")
    begin(str(tmp_path / "theirs"))
    begin(str(tmp_path / "given"))
    assert paths == [None, str(tmp_path / "given")]


@pytest.mark.parametrize(("rule", "status"), [("allow", 0), ("refuse", 1)])
def test_a_name_service_that_hangs_holds_up_no_login(rule: str, status: int) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", HANGS, rule], capture_output=True, text=True, check=False, timeout=PATIENCE,
        env={"PAM_TYPE": "open_session", "PAM_SERVICE": "sshd", "PAM_USER": "ann"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (status, "")
    assert "the name service has not answered within" in done.stdout


def test_a_session_that_has_been_moved_when_time_is_up_is_said_to_be_in_a_job(
    asked: list[int], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object) -> None:
        raise TimeoutError("the reply comes too late")

    del asked
    configured(monkeypatch, login_when_down="refuse")
    monkeypatch.setattr(pam_session, "_joined", fails)
    monkeypatch.setattr(pam_session, "cgroup_of", lambda pid="self": f"/group-of-{pid}")
    assert begin() == 0
    assert "in a job" in capfd.readouterr().out


def test_a_user_whose_jobs_take_no_session_is_told_why(
    asked: list[int], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    del asked
    monkeypatch.setattr(pam_session, "_joined", lambda *_: {"job": 0, "why": "job 7 is suspended"})
    assert begin() == 0
    assert "in no job: job 7 is suspended" in capfd.readouterr().out
    monkeypatch.setattr(pam_session, "_joined", lambda *_: {"job": 0, "why": ""})
    assert (begin(), capfd.readouterr().out) == (0, "")
