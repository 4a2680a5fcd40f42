"""`nodectl select check`: what it finds in plugins of careless authors, each one fault of the guide's plugin."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nodectl.cli.main import main
from nodectl.lab.selection import bench, check_command
from unit.simulation.authors import written

TEST = "    others = [] if"


def found(path: str) -> tuple[list[str], list[str]]:
    """Errors and warnings."""
    one = check_command.examine(path)
    return tuple([words for level, words in one.findings if level == which] for which in ("error", "warning"))  # type: ignore[return-value]  # two


def test_a_right_plugin_has_no_errors(tmp_path: Path) -> None:
    errors, warnings = found(written(tmp_path))
    assert errors == []
    assert len(warnings) == 2  # it knows nothing of preemption and suspension


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("    held.pop(job_ptr, None)", "    pass"), "job_fini"),
        (("        free &= ~excluded", "        pass"), "cores that are held for others"),
        (("    bitmap[:] = found.node_bitmap\n", "    bitmap.setall(1)\n"), "which was not offered"),
        (("bitmap.search(1)", "range(4)"), "which was not offered"),
        (("not required[index]", "required[index]"), "which the job requires"),
        (("        free &= ~held[other].core_bitmap\n", ""), "is another job's"),
        (("mib <= memory[index]", "True"), "MiB"),
        (("return SLURM_ERROR", "return SLURM_SUCCESS"), "1000 are the fewest"),
        (("[] if mode == SELECT_MODE_TEST_ONLY else ", ""), "refuses for good what only has to wait"),
        ((TEST, "    return 'yes'\n    others = [] if"), "not a number"),
        ((TEST, "    raise ValueError('no\\nidea')\n    others = [] if"), "ValueError: no idea"),
        ((TEST, "    bitmap.append(1)\n    return 0\n    others = [] if"), "bits long"),
        ((TEST, "    preempted.value = [job_ptr]\n    others = [] if"), "preempts a job that was no candidate"),
        ((TEST, "    raise SystemExit(0)\n    others = [] if"), "SystemExit"),
        (("def select_p_job_init", "def select_p_job_inits"), "select_p_job_init"),
        (("def select_p_job_fini(job_ptr)", "def select_p_job_fini()"), "takes 0 parameter(s); it is called with 1"),
        (('plugin_type = "select/first_fit"', 'plugin_type = "select/best_fit"'), "'select/first_fit' was asked for"),
        (("plugin_version = (22, 5, 8)", "plugin_version = (21, 8, 0)"), "version"),
        (("held = {}", "held = {"), "syntax error"),
        (("held = {}", "held = 1 / 0"), "ZeroDivisionError"),
    ],
)  # fmt: skip
def test_a_fault_is_told(tmp_path: Path, change: tuple[str, str], words: str) -> None:
    errors, _ = found(written(tmp_path, change))
    assert any(words in error for error in errors), errors


def test_a_call_that_hangs_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "_SECONDS", 0.05)
    errors, _ = found(written(tmp_path, (TEST, "    while True: pass\n    others = [] if")))
    assert any("took longer than 0.05 s" in error for error in errors), errors


STATEFUL = """
import os, pickle


def select_p_state_save(dir_name):
    with open(f"{dir_name}/first_fit", "w") as file:
        file.write("first_fit 1")


def select_p_state_restore(dir_name):
    try:
        with open(f"{dir_name}/first_fit") as file:
            said = file.read()
    except FileNotFoundError:
        return SLURM_SUCCESS
    return SLURM_SUCCESS if said == "first_fit 1" else SLURM_ERROR
"""


def with_state(directory: Path, *changes: tuple[str, str]) -> str:
    path = written(directory)
    text = STATEFUL
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    with open(path, "a") as file:
        file.write(text)
    return path


def test_a_state_that_is_written_and_read_is_well(tmp_path: Path) -> None:
    assert found(with_state(tmp_path))[0] == []


def test_a_state_that_is_not_verified_is_told(tmp_path: Path) -> None:
    _, warnings = found(with_state(tmp_path, ('said == "first_fit 1"', "said or True")))
    # Random bytes are no text, which fails by itself.
    assert any("takes a file that is empty" in words for words in warnings), warnings


def test_a_state_that_cannot_be_read_again_is_told(tmp_path: Path) -> None:
    errors, _ = found(with_state(tmp_path, ('"first_fit 1")', '"first_fit 2")')))
    assert any("does not start again with what it saved" in error for error in errors), errors


def test_jobs_that_are_forgotten_at_a_restart_are_told(tmp_path: Path) -> None:
    errors, _ = found(written(tmp_path, ("    held.update((job, job.job_resrcs) for job in job_list)", "    pass")))
    assert any("after a restart" in error for error in errors), errors


def test_the_command_tells_by_its_exit_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    right = written(tmp_path)
    wrong = written(tmp_path, ("    held.pop(job_ptr, None)", "    pass"), name="forgetful")
    assert main(["select", "check", right]) == 0
    assert "left out:" in capsys.readouterr().out
    assert main(["select", "check", right, wrong]) == 1
    assert main(["select", "check", "--static", wrong]) == 0
    assert main(["select", "check", str(tmp_path / "missing.py")]) == 2
    assert main(["select", "check", "select/missing"]) == 2
    capsys.readouterr()
    assert main(["select", "check", "--json", wrong]) == 1
    told = json.loads(capsys.readouterr().out)["plugins"][0]
    assert told["type"] == "select/forgetful"
    assert "select_p_job_test" in told["functions"]
    assert any(one["level"] == "error" for one in told["findings"])
