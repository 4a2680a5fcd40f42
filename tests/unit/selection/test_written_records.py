"""What a select plugin writes into a job's record: the document permits it in some functions, and a site decides there.
What is not a plugin's to write is put back, and the log says so.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from unit.selection.stage import FIRST, Stage, stage

CHANGES = {
    "name": "'renamed'", "account": "'physics'", "priority": "4711", "time_limit": "120", "comment": "'seen'",
    "state_desc": "'on its way'",
}  # fmt: skip


def writing(tmp_path: Path, *lines: str, function: str = "job_begin(job)") -> Stage:
    body = "".join(f"\n    {line}" for line in lines)
    return stage(tmp_path, f"{FIRST}\ndef select_p_{function}:{body}\n")


@pytest.mark.parametrize("field", CHANGES)
def test_what_job_begin_decides_of_a_job_takes_effect(tmp_path: Path, field: str) -> None:
    theatre = writing(tmp_path, f"job.{field} = {CHANGES[field]}")
    job = theatre.job()
    assert theatre.runs(job)
    assert repr(getattr(job, field)) == CHANGES[field]
    assert not theatre.selection.faults


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("user_id", "9"),
        ("job_id", "1"),
        ("job_state", "'COMPLETED'"),
        ("start_time", "1.0"),
        ("held_by", "'batch'"),
        ("qos", "'high'"),
        ("time_limit", "-1"),
        ("time_limit", "'long'"),
        ("time_limit", "True"),
        ("priority", "2 ** 32"),
        ("name", "'a\\nb'"),
        ("name", "'n' * 300"),
        ("account", "None"),
        ("comment", "7"),
    ],
)
def test_what_is_not_a_plugins_to_write_is_put_back_and_told(tmp_path: Path, field: str, value: str) -> None:
    theatre = writing(tmp_path, f"job.{field} = {value}")
    job = theatre.job()
    job.job_id = 7
    before = getattr(job, field)
    assert theatre.runs(job)
    assert getattr(job, field) == before
    words = f"changed {field} of job 7, which is as it was"
    assert theatre.selection.faults == [f"plugin select/actor: select_p_job_begin: {words}"]


def test_nothing_of_what_job_begin_wrote_takes_effect_where_it_fails(tmp_path: Path) -> None:
    theatre = writing(tmp_path, "job.time_limit = 120", "job.name = 'renamed'", "return -1")
    job = theatre.job()
    before = job.name, job.time_limit
    assert not theatre.runs(job)
    assert (job.name, job.time_limit) == before


@pytest.mark.parametrize(
    "function", ["job_fini(job)", "job_suspend(job, indefinitely)", "job_resume(job, indefinitely)"]
)
def test_functions_that_may_write_are_those_of_the_document(tmp_path: Path, function: str) -> None:
    theatre = writing(tmp_path, "job.account = 'physics'", "job.time_limit = 7", function=function)
    job = theatre.job()
    assert theatre.runs(job)
    selection = theatre.selection
    assert not selection.job_suspend(job, indf_susp=True)
    assert not selection.job_resume(job, indf_susp=True)
    assert not selection.job_fini(job)
    assert (job.account, job.time_limit) == ("physics", 0)
    (told,) = selection.faults
    assert "changed time_limit of job" in told


def test_function_that_only_reads_writes_words_alone(tmp_path: Path) -> None:
    theatre = writing(tmp_path, "job.comment = 'seen'", "job.name = 'renamed'", "return 1", function="job_ready(job)")
    job = theatre.job()
    assert theatre.runs(job)
    before = job.name
    assert theatre.selection.job_ready(job)
    assert (job.comment, job.name) == ("seen", before)
    assert ["changed name of job" in one for one in theatre.selection.faults] == [True]


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (("set_errno(28)", "return -1"), "No space left on device"),
        (("set_errno(28, 'no licence')", "return -1"), "no licence"),
        (("raise PluginError(28)",), "No space left on device"),
        (("return -1",), "returned -1"),
    ],
)
def test_errno_of_a_failing_function_is_told(tmp_path: Path, lines: tuple[str, ...], why: str) -> None:
    """An errno without words came as "returned -1"."""
    theatre = writing(tmp_path, "from nodectl.plugin_api import PluginError, set_errno", *lines)
    job = theatre.job()
    assert not theatre.runs(job)
    assert theatre.selection.job_begin(job) == f"plugin select/actor: select_p_job_begin: {why}"
    assert theatre.selection.faults[0] == f"plugin select/actor: select_p_job_begin: {why}"


def test_errno_of_a_function_that_returns_an_object_is_told(tmp_path: Path) -> None:
    lines = ("from nodectl.plugin_api import set_errno", "set_errno(12)")
    theatre = writing(tmp_path, *lines, function="select_jobinfo_alloc()")
    theatre.selection.info.admit(theatre.job())
    assert theatre.selection.faults == ["plugin select/actor: select_p_select_jobinfo_alloc: Cannot allocate memory"]
