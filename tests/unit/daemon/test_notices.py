"""What is told of which event, in which words, and how a courier and a later daemon agree on what was told."""

from __future__ import annotations

import email
import email.policy
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nodectl.model.config import Config
from nodectl.selection.records import JobDetails, JobRecord
from nodectl.service.daemon.history.notice import Notice
from nodectl.service.daemon.notices import courier, order_file, wishes, wording
from nodectl.service.daemon.notices.ways import FAILED

HOSTILE = "x\nBcc: eve@example.org\r\n\r\n.\n\x1b[2Jé\udcff"
ENCODED = ("=?utf-8?q?a=0aBcc:_evil@x.y?=", "=?us-ascii?q?=e9?= é", "==??utf-8?q?=0aBcc:_evil@x.y?=")


def config(**keys: object) -> Config:
    found: Any = SimpleNamespace(**{"sendmail": "/s", "notify_command": None, "notify_events": (), **keys})
    return found  # type: ignore[no-any-return]  # as much of one as is asked for


def job(**fields: Any) -> JobRecord:
    notices = {
        "types": fields.pop("types", "END"),
        "user": "ann",
        "command": fields.pop("command", ""),
        "secure": "none",
    }
    details = JobDetails(notices=notices, work_dir="/w")
    return JobRecord(7, 1000, user_name="ann", submit_time=1e9, details=details, **fields)


def test_each_way_has_its_own_events() -> None:
    found = wishes.of(
        job(types="BEGIN,TIME_LIMIT_50", command="x"), config(notify_command="/n", notify_events=("FAIL",))
    )
    assert found == {
        "mail": {"BEGIN", "TIME_LIMIT_50"},
        "command": {"BEGIN", "END", "FAIL", "REQUEUE", "IDLE", "TIME_LIMIT_80"},
        "site": {"BEGIN", "TIME_LIMIT_50", "FAIL"},
    }
    assert wishes.of(JobRecord(7), config()) == {}
    assert wishes.of(job(), config(sendmail=None)) == {}


@pytest.mark.parametrize(
    ("wanted", "states", "events"),
    [
        ({"END"}, {"COMPLETED": 1}, ["END"]),
        ({"END", "FAIL"}, {"FAILED": 1}, ["FAIL"]),
        ({"END"}, {"FAILED": 1}, ["END"]),
        ({"FAIL"}, {"CANCELLED": 1}, []),
        ({"FAIL"}, {"COMPLETED": 9, "OUT_OF_MEMORY": 1}, ["FAIL"]),
        ({"END", "TIME_LIMIT"}, {"TIMEOUT": 1}, ["TIME_LIMIT", "END"]),
        ({"BEGIN"}, {"FAILED": 1}, []),
    ],
)
def test_an_end_is_told_once_as_end_or_as_failure(wanted: set[str], states: dict[str, int], events: list[str]) -> None:
    assert wishes.events_of_end(frozenset(wanted), states) == events


@pytest.mark.parametrize("name", [HOSTILE, *ENCODED])
def test_a_hostile_name_is_one_line_of_a_mail_and_one_value_of_a_variable(name: str) -> None:
    made = wishes.made(job(name=name, state_desc=name), "END", "mail", at=1e9)
    read = email.message_from_bytes(wording.mail(made, ["ann", "bob@example.org"], "node"))
    assert sorted(read.keys()) == sorted(
        ["To", "Subject", "Date", "Message-ID", "Auto-Submitted", "X-Nodectl-Job", "X-Nodectl-Event", "Content-Type",
         "Content-Transfer-Encoding", "MIME-Version"]
    )  # fmt: skip
    assert read["To"] == "ann, bob@example.org"
    assert not [line for line in wording.text(made, "node").split("\n") if line.startswith(("Bcc", ".", "\x1b"))]
    assert "\n" not in wording.variables(made, "node")["NODECTL_EVENT_TEXT"]
    assert not [value for value in wording.variables(made, "node").values() if "\0" in value]


@pytest.mark.parametrize("name", ENCODED)
def test_a_name_that_looks_like_an_encoded_word_is_read_as_it_is(name: str) -> None:
    text = wording.mail(wishes.made(job(name=name), "END", "mail", at=1e9), ["ann"], "node")
    read = email.message_from_bytes(text, policy=email.policy.default)
    assert read["Subject"] == f"job 7 ({name.replace('=?', '= ?')}) has ended: PENDING"


def test_an_error_about_one_notice_keeps_no_other_from_being_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> int:
        raise UnicodeEncodeError("ascii", "é", 0, 1, "as of a mail")

    monkeypatch.setattr(courier, "_tell", fails)
    assert courier._guarded(wishes.made(job(), "END", "mail", at=1e9), {}, None) == FAILED


def test_the_identity_of_an_event_is_the_same_whenever_it_is_told() -> None:
    early, late = (wishes.made(job(restart_cnt=2), "BEGIN", "mail", at=at) for at in (1e9, 2e9))
    assert wording.identity(early) == wording.identity(late) == "7.2.BEGIN.1000000000"


def test_an_order_comes_back_with_what_was_told_and_a_torn_one_with_nothing(tmp_path: Path) -> None:
    path = str(tmp_path / "mail-1000")
    notices = [wishes.made(job(name=HOSTILE), event, "mail", at=1e9) for event in ("BEGIN", "END")]
    fd = order_file.write(path, {"notices": notices})
    rows: Any = order_file.order_of(fd)["notices"]
    assert [Notice(*row) for row in rows] == notices
    order_file.note(fd, 1, 75 << 8)
    order, statuses = order_file.told(path)
    assert (len(order["notices"]), statuses) == (2, {1: 75 << 8})  # type: ignore[arg-type]
    for torn in ("", '{"notices":[[7,'):
        Path(path).write_text(torn, encoding="ascii")
        assert order_file.told(path) == ({}, {})


def test_an_order_is_held_as_long_as_its_courier_lives(tmp_path: Path) -> None:
    path = str(tmp_path / "mail-1000")
    fd = order_file.write(path, {})
    with subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=[fd], text=True
    ) as courier:
        os.close(fd)  # as the daemon does, or its end
        assert order_file.is_held(path)
        with pytest.raises(BlockingIOError):
            order_file.write(path, {})
        courier.communicate("\n")
    assert not order_file.is_held(path)
    assert not order_file.is_held(str(tmp_path / "none"))


def test_a_record_without_notices_is_read_as_of_an_earlier_version() -> None:
    record = json.loads(json.dumps(job().as_json()))
    del record["details"]["notices"]
    assert JobRecord.from_json(record).details.notices == {}
