"""Commands for jobs: help, tables that fit, and what is wrong with a command line before the service is asked."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest

from nodectl.cli import cancel, list_jobs, main
from nodectl.client.render.explanation import explained
from nodectl.client.render.job_columns import STARTS, USUAL, WIDE, listing, name_of
from nodectl.client.session import Session

PENDING = {
    "job": 7, "array_tasks": "0-99%4", "user": "alice", "name": "a name that is much too long for any table of jobs",
    "state": "PENDING", "reason": "Resources", "words": "waits for 4 CPUs that jobs 3 and 5 have", "time_limit": 3600,
    "used": 0, "cpus": 4, "memory": 100, "priority": 12, "start": 1_800_000_000, "gres": ["gpu:2"],
    "command": ["a", "b c"],
}  # fmt: skip
RUNNING = {
    "job": 12, "array_job": 5, "array_task": 3, "user": "bob", "name": "sim", "state": "RUNNING", "used": 90_061,
    "time_limit": 0, "cpus": 2, "cpu_list": "0-1",
}  # fmt: skip


@pytest.mark.parametrize("command", ["submit", "alloc"])
def test_commands_of_sbatch_and_salloc_have_a_help_without_a_service(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main(["--socket", "/nonexistent", command, "--help"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"Usage: nodectl {command} ")
    assert "--dependency=LIST" in text
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(("job", "name"), [(PENDING, "7_[0-99%4]"), (RUNNING, "5_3"), ({"job": 9}, "9")])
def test_a_job_is_named_as_its_user_names_it(job: dict[str, object], name: str) -> None:
    assert name_of(job) == name


def test_the_queue_fits_into_eighty_columns_and_keeps_the_reason_in_sight() -> None:
    lines = listing([PENDING, RUNNING], USUAL, 80, wide=WIDE)
    assert max(map(len, lines)) <= 80
    assert "Resources: waits for 4" in lines[1]
    assert lines[2].split() == ["5_3", "bob", "sim", "R", "1-01:01:01", "2", "CPUs", "0-1"]
    assert lines[0].split()[:2] == ["JOB", "USER"]


def test_a_wide_terminal_shows_more_columns_and_whole_texts() -> None:
    (header, line, _) = listing([PENDING, RUNNING], USUAL, 250, wide=WIDE)
    assert "PRIORITY" in header
    assert "START" in header
    assert line.endswith("waits for 4 CPUs that jobs 3 and 5 have")
    assert str(PENDING["name"]) in line


def test_a_file_gets_the_usual_columns_uncut() -> None:
    (header, line, _) = listing([PENDING, RUNNING], USUAL, None, wide=WIDE)
    assert "LIMIT" not in header
    assert line.endswith("waits for 4 CPUs that jobs 3 and 5 have")


def test_expected_starts_are_told() -> None:
    (_, line) = listing([PENDING], STARTS, None)
    assert time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(1_800_000_000)) in line


def test_what_a_name_holds_moves_nobodys_cursor() -> None:
    assert "\x1b" not in "".join(listing([{**RUNNING, "name": "\x1b[2J"}], USUAL, None))


def test_an_explanation_says_reason_start_and_what_would_help() -> None:
    answer = {"reason": "Resources", "words": "It waits.", "for": [3, "bob"], "start": None, "help": ["Ask for less."]}
    lines = explained("7", answer, 80)
    assert lines == [
        "job:        7", "reason:     Resources", "starts:     not known", "waits for:  3, bob", "", "It waits.", "",
        "Ask for less.",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["queue", "-t", "X"], "'X' is no state"),
        (["queue", "-o", "job,nothing"], "no column is called 'nothing'"),
        (["queue", "-j", "7,x"], "'x' is no job"),
        (["cancel", "7_[1-"], "tasks of an array are written like"),
        (["cancel", "7_"], "tasks of an array are written like"),
        (["cancel", "0"], "'0' is no job"),
        (["hold", "7.0"], "'7.0' is no job"),
        (["update", "7", "--time=soon"], "Invalid time specification 'soon'"),
        (["reserve", "create", "--users=alice"], "one of the arguments --end --duration is required"),
    ],
)
def test_a_command_line_that_makes_no_sense_is_refused(
    words: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main.main(["--socket", "/nonexistent", *words])
    assert ended.value.code == 2
    assert why in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["cancel"], "nothing to cancel"),
        (["update", "7"], "nothing to change: give one of --time"),
        (["update", "7", "Colour=red"], "'Colour=red' changes nothing"),
        (["update", "7.1", "Nice=5"], "--nice: of jobs only"),
    ],
)
def test_a_command_without_a_wish_is_refused(words: list[str], why: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["--socket", "/nonexistent", *words]) == 2
    assert why in capsys.readouterr().err


def test_jobs_between_commas_may_have_tasks_between_commas() -> None:
    assert list_jobs.jobs("7,8_[0-3,9],10_2") == ["7", "8_[0-3,9]", "10_2"]


def test_what_an_explanation_holds_moves_nobodys_cursor() -> None:
    assert "\x1b" not in "".join(explained("7", {"words": "waits for \x1b[2J", "help": ["\x1b[2J"]}, 80))


@pytest.mark.parametrize(("module", "command"), [(list_jobs, "queue"), (cancel, "cancel")])
def test_me_is_who_asks_and_not_whom_the_environment_names(
    module: Any, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []

    class Silent(Session):
        def __init__(self, *_: object, **_options: object) -> None:
            pass

        def call(self, method: str, fds: Any = (), **parameters: Any) -> dict[str, Any]:
            asked.append(parameters)
            return {"jobs": [], "more": False, "cancelled": []}

        def close(self) -> None:
            pass

    monkeypatch.setattr(module, "Session", Silent)
    monkeypatch.setenv("LOGNAME", "somebody")  # as su leaves it
    assert main.main([command, "--me"]) == 0
    assert asked[0]["users"] == [str(os.getuid())]
