"""The log of what commands have used: whole lines only, whatever was at the end of the file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodectl.bulk import joblog, usage
from nodectl.bulk.command import Bulk
from nodectl.bulk.commands import Command
from nodectl.bulk.options import BulkParser
from nodectl.bulk.tally import Ending
from nodectl.client.command import Failed

EVENT = {
    "slot": 1, "status": 3 << 8, "started": 7.5, "seconds": 2.0, "user": 1.25, "system": 0.5, "memory": 2048,
    "read": 10, "written": 20,
}  # fmt: skip


def line(number: int, text: str = "do it") -> bytes:
    return usage.line_of(Command(number, text, ()), EVENT, Ending(EVENT))


LINES = line(1) + line(2)


def test_a_line_has_names_and_units_of_the_record() -> None:
    assert json.loads(line(4)) == {
        "seq": 4, "slot": 2, "started": 7.5, "seconds": 2.0, "exit_value": 3, "signal": 0, "user_seconds": 1.25,
        "system_seconds": 0.5, "memory_kib": 2048, "read_chars": 10, "written_chars": 20, "command": "do it",
    }  # fmt: skip


def test_a_command_of_several_lines_and_of_any_bytes_is_one_line() -> None:
    made = line(1, "echo 'a\nb'\t\0\udcff\u2028é")
    assert made.count(b"\n") == 1
    assert made.isascii()
    assert json.loads(made)["command"] == "echo 'a\nb'\t\0\udcff\u2028é"


@given(cut=st.integers(0, len(LINES)), zeros=st.integers(0, 5000))
def test_a_log_that_goes_on_has_whole_lines_only(
    tmp_path_factory: pytest.TempPathFactory, cut: int, zeros: int
) -> None:
    path = tmp_path_factory.mktemp("cut") / "log"
    path.write_bytes(LINES[:cut] + bytes(zeros))
    log = usage.UsageLog(str(path), keep=True)
    log.add(line(9))
    log.close()
    numbers = [json.loads(one)["seq"] for one in path.read_text().splitlines()]
    assert numbers == [*range(1, LINES[:cut].count(b"\n") + 1), 9]


def test_what_is_no_usage_log_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "log"
    joblog.JobLog(str(path), keep=False).close()
    with pytest.raises(Failed, match=r"usage log .*another kind of file"):
        usage.UsageLog(str(path), keep=True)
    assert path.read_text() == joblog.HEADER


@pytest.mark.parametrize(
    ("words", "stays"),
    [
        (["--usage-log", "used"], False),
        (["--usage-log", "+used"], True),
        (["--usage-log", "used", "--joblog", "log", "--resume"], True),
        (["--usage-log", "used", "--joblog", "+log"], False),
    ],
)
def test_it_goes_on_where_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], *, stays: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "used").write_bytes(LINES)
    log = Bulk(None, None, BulkParser().parse([*words, "echo", ":::", "a"]))._usage_log()  # type: ignore[arg-type]
    assert log is not None
    log.close()
    assert (tmp_path / "used").read_bytes() == (LINES if stays else b"")
