"""`nodectl init`: what it asks, what it writes, and what it never replaces."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodectl.cli import init, main
from nodectl.service.config_file import reader

pytestmark = pytest.mark.usefixtures("machine")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nodectl.cli.init._cpus", lambda: 16)
    monkeypatch.setattr("nodectl.cli.init._memory", lambda: 64000)


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is typed on a terminal, line by line; then the input ends."""
    typed: list[str] = []

    def lines() -> Iterator[str]:
        yield from typed
        raise EOFError

    reading = lines()
    monkeypatch.setattr("builtins.input", lambda _prompt: next(reading))
    monkeypatch.setattr("nodectl.cli.init._has_terminal", lambda: True)
    return typed


def run(path: Path, *words: str) -> int:
    return main.main(["--config", str(path), "init", *words])


def test_defaults_are_a_configuration_that_no_user_can_fill_alone(tmp_path: Path) -> None:
    path = tmp_path / "etc" / "nodectl.toml"
    assert run(path, "--yes") == 0
    config = reader.load(str(path), must_exist=True)
    assert (config.default_time, config.real_memory, config.def_mem_per_cpu) == (86_400, 57_600, 3600)
    assert (config.max_cpus_per_user, config.max_memory_per_user) == (8, 28_800)
    assert (config.admin_group, config.history_days) == ("nodectl", 365)
    assert path.stat().st_mode & 0o777 == 0o644
    assert all(line.startswith("# ") for line in path.read_text().splitlines() if line and " = " not in line)


def test_user_who_may_not_write_the_file_is_asked_nothing(
    tmp_path: Path, answers: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("builtins.input", lambda _prompt: pytest.fail("a question"))
    monkeypatch.setattr("os.access", lambda path, _mode: str(path) != str(tmp_path))
    assert run(tmp_path / "etc" / "nodectl.toml") == 1
    assert "as root it works" in capsys.readouterr().err
    assert not answers


def test_options_answer_and_the_rest_is_as_usual(tmp_path: Path) -> None:
    path = tmp_path / "nodectl.toml"
    assert run(path, "--time=8:00:00", "--user-cpus=4", "--memory=32G", "--admins=root") == 0
    config = reader.load(str(path), must_exist=True)
    assert (config.default_time, config.max_cpus_per_user, config.real_memory) == (28_800, 4, 32 << 10)
    assert (config.max_memory_per_user, config.admin_group) == (8 << 10, "root")


def test_six_questions_are_asked_again_until_they_are_answered(
    tmp_path: Path, answers: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "nodectl.toml"
    answers += ["soon", "1-0", "", "1G", "6", "no-such-group", "root", "30"]
    assert run(path) == 0
    assert "there is no group 'no-such-group'" in capsys.readouterr().out
    assert sum(one.is_asked for one in init.QUESTIONS) == 6
    values = tomllib.loads(path.read_text())
    assert (values["default_time"], values["def_mem_per_cpu"], values["max_cpus_per_user"]) == (86_400, 1024, 6)
    assert values["history_days"] == 30


def test_nothing_is_written_where_the_answers_end(
    tmp_path: Path, answers: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    answers.append("")
    assert run(tmp_path / "nodectl.toml") == 1
    assert "nothing was written" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_without_terminal_and_options_it_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path / "nodectl.toml") == 2
    assert "--yes" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["kill_wait = 7\n", "kill_wait = -7\n", "no TOML"])
def test_a_configuration_is_not_replaced_unasked(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    path = tmp_path / "nodectl.toml"
    path.write_text(text)
    assert run(path, "--yes") == 1
    assert "--force" in capsys.readouterr().err
    assert [one.read_text() for one in tmp_path.iterdir()] == [text]


def test_force_keeps_the_old_file_beside_and_what_is_not_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "nodectl.toml"
    old = 'gres = ["Name=gpu File=/dev/null"]\nkill_wait = 7\ndefault_time = 60\nallowed_ram_space = 99.5\n'
    path.write_text(f"# mine\n{old}")
    assert run(path, "--force", "--history=9") == 0
    values = tomllib.loads(path.read_text())
    assert values == {**tomllib.loads(path.read_text()), **tomllib.loads(old), "history_days": 9}
    (kept,) = (one for one in tmp_path.iterdir() if one != path)
    assert kept.read_text() == f"# mine\n{old}"
    assert kept.name.startswith("nodectl.toml.2")


def test_force_takes_nothing_of_a_file_that_is_not_valid_and_keeps_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "nodectl.toml"
    path.write_text("kill_wait = -7\n")
    assert run(path, "--force") == 2  # neither terminal nor options
    assert run(path, "--force", "--yes") == 0
    assert "nothing of it is taken over" in capsys.readouterr().err
    assert "kill_wait" not in tomllib.loads(path.read_text())
    assert "kill_wait = -7\n" in {one.read_text() for one in tmp_path.iterdir()}


def test_comments_alone_are_no_configuration_and_stay_beside(tmp_path: Path) -> None:
    path = tmp_path / "nodectl.toml"
    path.write_text("# The configuration of this node.\n")
    assert run(path, "--yes") == 0
    assert len(list(tmp_path.iterdir())) == 2


def test_what_the_service_would_refuse_is_not_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "nodectl.toml"
    assert run(path, f"--history={10**7}") == 1
    assert "history_days" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644])
def test_a_configuration_that_is_replaced_can_be_read_by_the_same_people_as_before(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "nodectl.toml"
    path.write_text("default_time = 60\n")
    group = 65534 if os.geteuid() == 0 else os.getegid()
    os.chown(path, -1, group)
    path.chmod(mode)
    assert run(path, "--yes", "--force") == 0
    assert (path.stat().st_mode & 0o7777, path.stat().st_gid) == (mode, group)


def test_a_link_in_the_place_of_a_configuration_hides_no_mode(tmp_path: Path) -> None:
    there, path = tmp_path / "there.toml", tmp_path / "nodectl.toml"
    there.write_text("default_time = 60\n")
    there.chmod(0o600)
    path.symlink_to(there)
    assert run(path, "--yes", "--force") == 0
    assert path.is_file()
    assert not path.is_symlink()
    assert path.stat().st_mode & 0o7777 == 0o600
