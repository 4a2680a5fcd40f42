"""What is told of which event, in which words, and how a courier and a later daemon agree on what was told."""

from __future__ import annotations

import asyncio
import email
import email.policy
import errno
import json
import os
import pwd
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import descriptors
from nodectl.launch.cgroup.delegation import Base
from nodectl.model.config import Config
from nodectl.model.states import REQUEUED
from nodectl.selection.records import JobDetails, JobRecord
from nodectl.service.config_file.reader import build
from nodectl.service.daemon.history import job_store
from nodectl.service.daemon.history.job_store import JobStore
from nodectl.service.daemon.history.notice import Notice
from nodectl.service.daemon.history.store import Store
from nodectl.service.daemon.notices import courier, notices, order_file, wishes, wording
from nodectl.service.daemon.notices.notices import Notices
from nodectl.service.daemon.notices.ways import FAILED, LATE, NOT_BEGUN, UNKNOWN_USER

HOSTILE = "x\nBcc: eve@example.org\r\n\r\n.\n\x1b[2Jé\udcff"
ENCODED = ("=?utf-8?q?a=0aBcc:_evil@x.y?=", "=?us-ascii?q?=e9?= é", "==??utf-8?q?=0aBcc:_evil@x.y?=")


def config(**keys: object) -> Config:
    found: Any = SimpleNamespace(**{"sendmail": "/s", "notify_command": None, "notify_events": (), **keys})
    return found  # type: ignore[no-any-return]  # as much of one as is asked for


class Life:
    """A daemon's notices, over a history that outlives it. Nothing is written before `write`, nothing told."""

    def __init__(self, path: Path, lives: set[int], **keys: object) -> None:
        self.store = JobStore(Store(str(path), 100), "/run/one", "boot", lambda _: {})
        self.notices = Notices(
            build({"runtime_dir": str(path.parent), "max_notices_per_user": 3, "sendmail": "/bin/true", **keys}),
            self.store, Base("", "", (), {}), SimpleNamespace(),  # type: ignore[arg-type]  # of no level
            durable=asyncio.get_running_loop().create_future, lives=lives.__contains__,
            has_row=lambda job: job.name != "at once", device_rules=list,
        )  # fmt: skip

    def done(self) -> asyncio.Future[None]:
        future = asyncio.get_running_loop().create_future()
        future.set_result(None)
        return future

    def waiting(self) -> list[str]:
        self.store.commit()
        return [one.event for one in self.store.notices("mail", 1000, 99)]


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
    fd = order_file.write(path, {"notices": []})
    with subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=[fd], text=True
    ) as courier:
        os.close(fd)  # as the daemon does, or its end
        assert order_file.is_held(path)
        with pytest.raises(BlockingIOError):
            order_file.write(path, {"notices": []})
        courier.communicate("\n")
    assert not order_file.is_held(path)
    assert not order_file.is_held(str(tmp_path / "none"))


def test_a_record_without_notices_is_read_as_of_an_earlier_version() -> None:
    record = json.loads(json.dumps(job().as_json()))
    del record["details"]["notices"]
    assert JobRecord.from_json(record).details.notices == {}


def test_what_daemons_note_again_takes_no_room_from_the_end(tmp_path: Path) -> None:
    """Of three notices that may wait."""

    async def lives() -> None:
        running, known = job(types="BEGIN,END", job_state="RUNNING"), {7}
        for _ in range(5):
            life = Life(tmp_path / "history.db", known)
            life.notices.begun(running)
            life.notices.begun(running)
            assert life.waiting() == ["BEGIN"]
            life.notices._serves = False
        known.clear()
        running.job_state = "COMPLETED"
        life.notices.ended(running)
        assert life.waiting() == ["BEGIN", "END"]
        assert not life.notices._noted

    asyncio.run(lives())


def test_a_notice_that_was_told_is_known_to_the_next_daemon_until_its_job_is_over(tmp_path: Path) -> None:
    async def lives() -> None:
        running, known = job(types="BEGIN,END", job_state="RUNNING"), {7}
        life = Life(tmp_path / "history.db", known)
        life.notices.begun(running)
        assert life.waiting() == ["BEGIN"]
        (told,) = life.store.notices("mail", 1000, 1)
        assert life.notices._was_told(told, 0)
        assert life.waiting() == []
        again = Life(tmp_path / "history.db", known)
        again.notices.begun(running)
        assert again.waiting() == []
        assert not again.notices._waiting
        known.clear()
        again.notices.begin()
        assert not again.notices._noted
        again.store.commit()
        assert not list(again.store.noted())

    asyncio.run(lives())


def test_runs_that_are_over_keep_nothing_once_they_were_told(tmp_path: Path) -> None:
    """Users may put their jobs into the queue again as often as they like."""

    async def lives() -> None:
        known = {7}
        life = Life(tmp_path / "history.db", known)
        for restart in range(9):
            running = job(types="BEGIN,REQUEUE", job_state="RUNNING", restart_cnt=restart)
            life.notices.begun(running)
            life.notices.begun(running)
            life.notices.requeued(running)
            assert life.waiting() == ["BEGIN", "REQUEUE"]
            for told in life.store.notices("mail", 1000, 99):
                life.notices._was_told(told, 0)
        life.store.commit()
        runs = {identity[1] for identity, *_ in life.store.noted()}
        assert (runs, {one[1] for one in life.notices._noted[7]}) == ({0, 8}, {0, 8})

    asyncio.run(lives())


def test_notices_with_long_commands_count_several_times_among_those_that_wait(tmp_path: Path) -> None:
    """5,000 of 100 KB each were half a gigabyte in the history, of a user whose command takes its time."""

    async def lives() -> None:
        life = Life(tmp_path / "history.db", {7}, max_notices_per_user=30)
        for restart in range(9):
            running = job(types="", command="\U0001f600" * 4096, job_state="RUNNING", restart_cnt=restart)
            life.notices.begun(running)
        life.store.commit()
        waiting = life.store.notices("command", 1000, 99)
        assert len(waiting) == 2  # 49 KB each
        again = Life(tmp_path / "history.db", {7}, max_notices_per_user=30)
        again.notices.begun(job(types="", command="\U0001f600" * 4096, job_state="RUNNING", restart_cnt=9))
        again.store.commit()
        assert len(again.store.notices("command", 1000, 99)) == 2
        for told in waiting:
            again.notices._was_told(told, 0)
        assert not again.notices._weight

    asyncio.run(lives())


def test_a_notice_larger_than_the_room_is_told_alone(tmp_path: Path) -> None:
    async def lives() -> None:
        life = Life(tmp_path / "history.db", {7}, max_notices_per_user=1)
        for restart in range(2):
            life.notices.begun(job(types="", command="x" * 4096, job_state="RUNNING", restart_cnt=restart))
        life.store.commit()
        assert len(life.store.notices("command", 1000, 99)) == 1

    asyncio.run(lives())


def test_nothing_is_told_of_a_run_that_began_at_once(tmp_path: Path) -> None:
    """The service does not write its end, either."""

    async def lives() -> None:
        life = Life(tmp_path / "history.db", {7})
        running = job(types="ALL", job_state="RUNNING", name="at once")
        life.notices.begun(running)
        life.notices.idle(running, "it does nothing")
        assert life.waiting() == []
        assert not life.notices._noted

    asyncio.run(lives())


def test_each_task_of_an_array_counts_once_with_its_last_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_store, "_SLICE", 2)

    async def ends() -> dict[str, int]:
        life = Life(tmp_path / "history.db", set())
        for number in range(1, 6):
            task = JobRecord(number, 1000, array_job_id=5, array_task_id=number, end_time=1.0)
            for restart in range(number % 3):  # none, one or two runs before the last one
                task.restart_cnt = restart
                life.store.put_run(task, "NODE_FAIL" if restart else REQUEUED)
            task.restart_cnt, task.job_state = number % 3, "FAILED" if number == 5 else "COMPLETED"
            life.store.put(task)
            life.store.commit()
        return await life.notices._ends_of_array(5)

    assert asyncio.run(ends()) == {"COMPLETED": 4, "FAILED": 1}


def test_tasks_that_were_cancelled_together_while_they_waited_count_each(tmp_path: Path) -> None:
    async def ends() -> dict[str, int]:
        life = Life(tmp_path / "history.db", set())
        for task in (
            JobRecord(6, 1000, array_job_id=5, array_task_id=0, end_time=1.0, job_state="COMPLETED"),
            JobRecord(7, 1000, array_job_id=5, array_task_id=1, end_time=1.0, job_state="CANCELLED"),
            JobRecord(5, 1000, array_job_id=5, array_tasks="2-999:2,7", end_time=1.0, job_state="CANCELLED"),
        ):
            life.store.put(task)
        life.store.commit()
        return await life.notices._ends_of_array(5)

    assert asyncio.run(ends()) == {"COMPLETED": 1, "CANCELLED": 501}


def test_a_command_that_could_not_run_is_logged_and_one_that_failed_is_its_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(
        "nodectl.service.daemon.notices.notices.messages.tell", lambda name, words, **_: said.append(f"{name}: {words}")
    )

    async def told() -> None:
        life = Life(tmp_path / "history.db", {7})
        of_command = wishes.made(job(command="x"), "END", "command", at=1e9)
        for status in (0, 3 << 8, LATE, UNKNOWN_USER, FAILED, 127 << 8):
            assert life.notices._was_told(of_command, status)

    asyncio.run(told())
    assert [line.partition("command: ")[2] for line in said] == [
        "took longer than notify_timeout", "there is no such user", "an error of nodectl",
        "ended with exit code 127",
    ]  # fmt: skip
    assert said[0].startswith("notice-failed: job 7: END was not told by command")


@pytest.mark.parametrize("way", ["mail", "command", "site"])
def test_what_the_system_had_no_process_for_is_told_again_in_each_way(tmp_path: Path, way: str) -> None:
    async def told() -> None:
        life = Life(tmp_path / "history.db", {7})
        made = wishes.made(job(command="x"), "END", way, at=1e9)
        assert not life.notices._was_told(made, NOT_BEGUN)
        assert life.notices._was_told(made, 0)
        tries = [life.notices._was_told(made, NOT_BEGUN) for _ in range(5)]
        assert tries == [False] * 4 + [True]

    asyncio.run(told())


@pytest.mark.parametrize("call", ["fork", "memfd_create", "open"])
def test_a_courier_that_cannot_start_a_program_says_that_nothing_has_begun(
    monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(courier, "Confinement", lambda *_: None)
    step: Any = SimpleNamespace(environment={}, cwd="/")
    with descriptors.none_left(), monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        assert courier._run(["/bin/sh"], b"text", step, None, 60) == NOT_BEGUN


def test_what_a_torn_order_named_is_told_by_the_next_courier(tmp_path: Path) -> None:
    async def settles() -> None:
        life = Life(tmp_path / "history.db", {7})
        (tmp_path / "notices").mkdir()
        (tmp_path / "notices/mail-1000").write_text('{"notices":[[7,', encoding="ascii")
        life.notices._take(("mail", 1000))
        await life.notices._settle(("mail", 1000))
        assert list(life.notices._ready) == [("mail", 1000)]

    asyncio.run(settles())


def test_an_order_is_whole_or_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, room, write = str(tmp_path / "mail-1000"), [1 << 20], os.write

    def on_a_full_disk(fd: int, text: bytes) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        part = text[: min(7, room[0])]
        room[0] -= len(part)
        return write(fd, part)

    monkeypatch.setattr("nodectl.service.daemon.notices.order_file.os.write", on_a_full_disk)
    os.close(order_file.write(path, {"notices": list(range(100))}))
    assert order_file.told(path) == ({"notices": list(range(100))}, {})
    room[0] = 20
    with pytest.raises(OSError, match="No space left"):
        order_file.write(path, {"notices": list(range(100))})
    assert order_file.told(path) == ({}, {})


def test_half_of_a_courier_s_line_tells_nothing(tmp_path: Path) -> None:
    path = tmp_path / "mail-1000"
    for length in range(14):
        fd = order_file.write(str(path), {"notices": [[0], [1]]})
        order_file.note(fd, 0, -4)
        whole = path.read_bytes()
        order_file.note(fd, 1, 32512)
        os.close(fd)
        line = path.read_bytes()[-13:][:length]  # so much of it was written when the courier was killed
        path.write_bytes(whole[:-13] + line + whole[len(whole) - 13 + length :])
        assert order_file.told(str(path))[1] == ({0: -4, 1: 32512} if length >= 12 else {0: -4})


def test_what_is_told_needs_no_room_on_the_disk(tmp_path: Path) -> None:
    path = tmp_path / "mail-1000"
    fd = order_file.write(str(path), {"notices": list(range(16))})
    size = path.stat().st_size
    for place in (3, 15, 0):
        order_file.note(fd, place, -(1 << 31) + place)
    os.close(fd)
    assert path.stat().st_size == size
    assert order_file.told(str(path))[1] == {place: -(1 << 31) + place for place in (0, 3, 15)}


def test_what_was_told_is_read_when_a_descriptor_is_free_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would be told once more."""
    monkeypatch.setattr(notices, "_AGAIN", 0.0)
    tries, read = [], order_file.told

    def told(path: str) -> object:
        tries.append(path)
        if len(tries) < 3:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return read(path)

    monkeypatch.setattr(order_file, "told", told)

    async def settles() -> None:
        life = Life(tmp_path / "history.db", {7})
        life.notices._durable = life.done
        life.notices.begun(job(types="BEGIN", job_state="RUNNING"))
        life.store.commit()
        (tmp_path / "notices").mkdir()
        fd = order_file.write(str(tmp_path / "notices/mail-1000"), {"notices": life.store.notices("mail", 1000, 9)})
        order_file.note(fd, 0, 0)
        os.close(fd)
        life.notices._take(("mail", 1000))
        await life.notices._settle(("mail", 1000))
        assert life.waiting() == []
        assert ("mail", 1000) not in life.notices._ready

    asyncio.run(settles())
    assert len(tries) == 3


def test_the_shares_of_a_time_limit_stand_still_with_the_job(tmp_path: Path) -> None:
    async def watched() -> None:
        life = Life(tmp_path / "history.db", {7})
        now = time.time()
        stopped = job(types="TIME_LIMIT_50", job_state="SUSPENDED", time_limit=100, start_time=now - 90)
        stopped.suspend_time = now - 60  # by an administrator, after 30 s
        life.notices.watch(stopped)
        assert life.waiting() == []
        assert list(life.notices._limits) == [7]
        life.notices.forget(7)
        stopped.suspended_by_owner = True
        life.notices.watch(stopped)
        assert life.waiting() == ["TIME_LIMIT_50"]

    asyncio.run(watched())


def test_a_command_that_hangs_delays_no_end_of_the_daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notices, "_AT_THE_END", 0.01)

    async def ends() -> None:
        life = Life(tmp_path / "history.db", {7})
        life.notices._take(("command", 1000))
        await life.notices.settle()

    asyncio.run(ends())


def test_a_courier_leaves_a_process_that_does_not_die(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one in a system call on a file system that hangs."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, text=True) as undying:
        monkeypatch.setattr("nodectl.service.daemon.notices.courier.scripts.start_as", lambda *_, **__: undying.pid)
        monkeypatch.setattr("nodectl.service.daemon.notices.courier.signals.send_group_of_child", lambda *_: None)
        monkeypatch.setattr(courier, "_DYING", 0.01)
        monkeypatch.setattr(courier, "Confinement", lambda *_: None)
        step: Any = SimpleNamespace(environment={}, cwd="/")
        assert courier._run(["/bin/sh"], b"", step, None, 0.01) == LATE
        undying.communicate("\n")


def test_sendmail_reads_no_file_of_the_home_of_a_user_whose_job_is_confined() -> None:
    """In ~/.msmtprc, say, stands a command."""
    user = pwd.getpwuid(os.getuid())
    order = {"node": "n", "hard_limits": {}}
    for level, home in (("none", user.pw_dir), ("default", "/nonexistent"), ("strict", "/nonexistent")):
        confined = job()
        confined.details.notices["secure"] = level
        told = wishes.made(confined, "END", "mail", at=1e9)
        assert courier._step_of(told, user, "none", order).environment["HOME"] == home
