"""`nodectl doctor` on PAM's files: whether sessions join jobs, and in which order modules are called."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodectl.cli.checks import logins
from nodectl.cli.checks.check import OK, WARN
from nodectl.service.config_file.reader import build

CALL = "session optional pam_exec.so quiet stdout /usr/bin/nodectl login --pam\n"
SYSTEMD = "session\toptional\tpam_systemd.so\n"
READS = "session required pam_env.so user_readenv=1 envfile=/etc/default/locale\n"


def found(tmp_path: Path, sshd: str, entry: str = "join", down: str = "allow") -> list[tuple[str, str]]:
    """The findings about a machine with these files."""
    (tmp_path / "sshd").write_text(f"# of a test\naccount required pam_unix.so\n@include common-session\n{sshd}")
    (tmp_path / "common-session").write_text(SYSTEMD)
    config = build({"login_entry": entry, "login_when_down": down})
    return [(check.level, check.detail) for check in logins.all_checks(config, str(tmp_path))]


def test_a_line_after_pam_systemd_is_as_it_should_be(tmp_path: Path) -> None:
    ((level, detail),) = found(tmp_path, CALL + READS)
    assert (level, "join" in detail) == (OK, True)


def test_a_machine_whose_sessions_are_to_join_nothing_is_told_nothing(tmp_path: Path) -> None:
    assert found(tmp_path, "", "off") == []


@pytest.mark.parametrize(
    ("sshd", "entry", "words"),
    [
        ("", "join", "no file of"),
        (READS + CALL, "join", "LD_PRELOAD"),
        (CALL + SYSTEMD, "join", "takes sessions out of their jobs"),
        (CALL, "require", "refuses no session"),
        (CALL.replace("optional", "[success=ok default=ignore]"), "require", "refuses no session"),
    ],
)
def test_a_line_that_is_missing_or_in_the_wrong_place_is_told(
    tmp_path: Path, sshd: str, entry: str, words: str
) -> None:
    ((level, detail),) = found(tmp_path, sshd, entry)
    assert (level, words in detail) == (WARN, True), detail


def test_a_line_that_cannot_refuse_is_told_where_sessions_are_to_be_refused_without_the_service(tmp_path: Path) -> None:
    assert found(tmp_path, CALL, down="refuse")[0][0] == WARN
    assert found(tmp_path, CALL.replace("optional", "required"), down="refuse")[0][0] == OK
    assert found(tmp_path, CALL, "off", "refuse")[0][0] == OK


def test_files_that_include_each_other_are_read_to_an_end(tmp_path: Path) -> None:
    (tmp_path / "loop").write_text("@include loop\nsession include loop\n")
    assert found(tmp_path, CALL)[0][0] == OK
