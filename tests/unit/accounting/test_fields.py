"""The fields of `nodectl acct`: names, widths, and how values are printed."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodectl.cli.acct import _help, listing
from nodectl.model.accounting import fields
from nodectl.model.accounting.amounts import amount, near
from nodectl.model.accounting.fields import FIELDS, Style, UnknownField, columns
from nodectl.model.states import state_named
from unit.accounting.made_up import job, record, rows, task

STYLE = Style(now=2000.0, times="%s")


def texts(names: str, row: object, style: Style = STYLE) -> list[str]:
    return [str(field.text(row, style)) for field, _ in columns(names)]  # type: ignore[arg-type]


def test_every_field_says_something_or_nothing_of_every_row() -> None:
    running = record(9, state="RUNNING", started=None, ended=None, tasks=[])
    found = rows([record(), running, record(8, tasks=[], state="FAILED")], [job(), job(10, job_state="PENDING")])
    for one, steps in found:
        for row in (one, *steps):
            for field in FIELDS.values():
                assert "None" not in str(field.text(row, STYLE)) or field.name == "NodeList"
    for names in (fields.USUAL, fields.BRIEF, fields.LONG):
        assert len(columns(",".join(names))) == len(names)


def test_the_list_of_fields_has_all_of_them_and_nothing_else() -> None:
    """Clients give back to --format what --helpformat prints."""
    words = " ".join(_help()).split()
    assert {field.name for field, _ in columns(",".join(words))} == {field.name for field in FIELDS.values()}
    assert {"AdminComment", "JobID", "WCKey"} <= set(words)


def test_values_are_printed_as_sacct_prints_them() -> None:
    [(one, [step])] = rows([record(tasks=[task(max_rss_kib=5120)])], [job()])
    assert texts("JobID,State,ExitCode,Elapsed,TotalCPU,CPUTimeRAW,ReqMem,Timelimit,Reserved,AllocTRES", one) == [
        "7", "COMPLETED", "0:0", "00:03:20", "00:01.500", "400", "200M", "01:00:00", "00:00:50",
        "cpu=2,mem=200M,node=1,gres/gpu=2",
    ]  # fmt: skip
    assert texts("jobid,maxrss,MaxDiskRead,AVECPU,NTasks,User,Start,Efficiency", step) == [
        "7.0", "5M", "10.00M", "00:00:01", "1", "", "1010", "0.8%",
    ]  # fmt: skip
    assert texts("MaxRSS,Read", step, Style(0, unit="K")) == ["5120K", "10240K"]
    assert texts("MaxRSS,Read", step, Style(0, plain=True)) == ["5242880", "10485760"]


def test_table_cuts_what_is_too_long_and_says_so() -> None:
    [(one, _)] = rows([record(name="a-very-long-name")])
    lines = listing(columns("JobID,JobName,JobName%-20,State%4"), [one], STYLE, header=True)
    assert lines == [
        "JobID           JobName JobName              Stat",
        "------------ ---------- -------------------- ----",
        "7            a-very-lo+ a-very-long-name     COM+",
    ]


def test_a_name_moves_nobodys_cursor() -> None:
    [(one, _)] = rows([record(name="x\x1b[2J\ny")])
    [line] = listing(columns("JobName%30"), [one], STYLE, header=False)
    assert line.strip() == r"x\x1b[2J\ny"


@pytest.mark.parametrize("text", ["", ",", "nofield", "JobID%", "JobID%x", "JobID%-", "JobID%%3", "%5"])
def test_unknown_fields_are_refused_by_name(text: str) -> None:
    with pytest.raises(UnknownField):
        columns(text)


@given(st.text(max_size=40))
def test_any_format_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(UnknownField):
        assert columns(text)


def test_amounts_are_exact_or_near() -> None:
    assert [amount(count) for count in (None, 0, 1, 1024, 1025, 3 << 20, 5 << 40)] == [
        "", "0", "1", "1K", "1025", "3M", "5T",
    ]  # fmt: skip
    assert [near(count) for count in (0, 1023, 1536, 10 << 30)] == ["0", "1023", "1.50K", "10.00G"]
    assert amount(1536, "M") == "0M"
    assert amount(5 << 19, "M") == "2.5M"


def test_states_are_named_in_full_or_by_their_letters() -> None:
    assert [state_named(word) for word in ("cd", "Failed", " OOM ")] == ["COMPLETED", "FAILED", "OUT_OF_MEMORY"]
    with pytest.raises(ValueError, match="no state"):
        state_named("done")


@pytest.mark.parametrize("width", ["--5", "-", "5-", "", "wide"])
def test_a_width_that_is_no_number_is_refused_in_words(width: str) -> None:
    with pytest.raises(UnknownField, match="a width is a number"):
        columns(f"JobID%{width}")
