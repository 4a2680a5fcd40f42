"""What the disk knows to have ended has its output on the disk: a machine may be lost at any time."""

from __future__ import annotations

import _thread
import errno
import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nodectl.bulk import joblog, outputs
from nodectl.bulk.command import Bulk
from nodectl.bulk.options import BulkParser
from nodectl.bulk.progress import Progress
from nodectl.bulk.usage import UsageLog
from nodectl.client.command import Failed
from nodectl.kernel import _kernel

PATIENCE = 30  # seconds
NUMBERS = range(1, 8)
PRINTED, KEPT, UNGROUPED = ("--tmpdir", "."), ("--results", "out"), ("-u",)


class Disk:
    """A directory with its stdout in it, and what of it a lost machine would have after the last sync."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = path
        self.has: dict[str, str] = {}
        self.syncs: list[str] = []
        monkeypatch.setattr(os, "fdatasync", self.sync_file)
        monkeypatch.setattr(_kernel, "sync_all_of", self.sync_all)

    def sync_file(self, fd: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{fd}"))
        if path.parent != self.path:
            return  # stderr of these tests
        self.has[path.name] = path.read_text()
        self.syncs.append(path.name)
        self.is_true()

    def sync_all(self, fd: int) -> None:
        """Outputs only: that the logs are there as well is no help, the kernel may write them last."""
        assert os.fstat(fd).st_dev == self.path.stat().st_dev
        found = (path for path in self.path.rglob("*") if path.is_file() and path.name not in ("log", "used"))
        self.has.update({str(path.relative_to(self.path)): path.read_text() for path in found})
        self.syncs.append("all")

    def is_true(self) -> None:
        """Whoever is in the log has all that it has written here."""
        for line in self.has.get("log", "").splitlines()[1:]:
            number = line.split("\t")[0]
            assert f"output {number}\n" in self.has.get("stdout", "")
            assert f'"seq":{number},' in self.has.get("used", "")
            if (self.path / "out").exists():
                assert self.has.get(f"out/1/{number}/stdout") == f"output {number}\n"
                assert self.has.get(f"out/1/{number}/seq") == number
                assert f"out/1/{number}/usage" in self.has


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(joblog, "_REST", 0)
    return Disk(tmp_path, monkeypatch)


def play(
    made: Bulk, log: joblog.JobLog, used: UsageLog, _progress: Progress, shown: outputs.Outputs
) -> int:  # fmt: skip
    """In place of a step: commands end, and now and then the logs go to the disk."""
    for number in NUMBERS:
        command = made.commands.next()
        assert command is not None
        shown.place(command)
        command.usage = b'{"seq":%d,"slot":1}\n' % number
        target = "/proc/self/fd/1" if command.stdout == "-" else command.stdout
        with open(target, "a", encoding="utf-8") as file:
            file.write(f"output {number}\n")
        shown.ended(command)
        shown.show(command)
        used.add(command.usage)
        log.ended(number, 1.0, 0.0, 0, 0, 0, command.line)
        if number % 3 == 0:
            log.settle()
        if number % 3 == 1:
            log._settled()
    return 0


def run(*words: str) -> int:
    """The command, its stdout a file."""
    parsed = BulkParser().parse([*words, "--joblog", "log", "--usage-log", "used", "echo", ":::", *map(str, NUMBERS)])
    before, stdout = os.dup(1), os.open("stdout", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(stdout, 1)
    try:
        session: Any = SimpleNamespace(hold_signals=lambda: None)  # nothing is launched
        return Bulk(session, None, parsed).status()
    finally:
        os.dup2(before, 1)
        os.close(before)
        os.close(stdout)


@pytest.mark.parametrize("words", [PRINTED, KEPT, UNGROUPED])
def test_outputs_are_on_the_disk_before_the_log_is(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setattr(Bulk, "_run", play)
    assert run(*words) == 0
    assert disk.syncs.count("log") == 3  # as often as asked, and at the end
    assert disk.has["log"] == (disk.path / "log").read_text()
    assert disk.has["log"].count("\n") == 1 + len(NUMBERS)
    assert disk.syncs.count("all") == (3 if words is KEPT else 0)


def add(log: joblog.JobLog, number: int) -> None:
    log.ended(number, 1.0, 0.0, 0, 0, 0, "echo")


def numbers() -> list[str]:
    """In the log."""
    return [line.split("\t")[0] for line in Path("log").read_text().splitlines()[1:]]


@pytest.fixture
def synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Each time that the log goes to the disk: the numbers in it."""
    found: list[list[str]] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(joblog, "_REST", 0)
    monkeypatch.setattr(os, "fdatasync", lambda _: found.append(numbers()))
    return found


def test_nothing_waits_for_a_slow_disk_and_no_line_comes_before_its_output(
    synced: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joblog, "_MOST_HELD", 50)  # two lines, but not one
    begins, go_on = threading.Event(), threading.Event()

    def slow() -> None:
        begins.set()
        assert go_on.wait(PATIENCE), "the loop waits for the disk"

    log = joblog.JobLog("log", keep=False)
    log.before = (slow,)
    add(log, 1)
    log.settle()
    assert begins.wait(PATIENCE)
    for number in (2, 3):
        add(log, number)
        log.settle()
        log.look()
    assert (numbers(), synced) == (["1"], [])
    assert log.seconds
    threading.Timer(0.1, go_on.set).start()
    add(log, 4)  # no more are held
    assert (numbers(), synced) == (["1", "2", "3", "4"], [["1"]])
    assert log.seconds is None
    log.close()
    assert synced == [["1"], ["1", "2", "3", "4"]]


def test_lines_are_held_no_longer_than_the_disk_takes(synced: list[list[str]]) -> None:
    go_on = threading.Event()

    def slow() -> None:
        go_on.wait(PATIENCE)

    log = joblog.JobLog("log", keep=False)
    log.before = (slow,)
    add(log, 1)
    log.settle()
    add(log, 2)
    go_on.set()
    while log._is_settling():
        time.sleep(0.001)
    assert numbers() == ["1"]
    log.look()
    assert (numbers(), synced) == (["1", "2"], [["1"]])
    log.close()


def test_a_log_that_cannot_have_a_thread_waits(synced: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(_thread, "start_new_thread", none)
    log = joblog.JobLog("log", keep=False)
    add(log, 1)
    log.settle()
    assert synced == [["1"]]
    log.close()


def test_a_log_without_anything_new_costs_nothing(disk: Disk) -> None:
    log = joblog.JobLog("log", keep=False)
    log.before = (lambda: disk.syncs.append("before"),)
    for _ in range(3):
        log.settle()
    log.close()
    assert disk.syncs == []


@pytest.mark.parametrize(("error", "said"), [(errno.EIO, "may be incomplete"), (errno.EINVAL, "")])
def test_a_disk_that_has_lost_an_output_is_told(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, error: int, said: str
) -> None:
    def loses(_fd: int) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(Bulk, "_run", play)
    monkeypatch.setattr(_kernel, "sync_all_of", loses)
    if said:
        with pytest.raises(Failed, match=said):
            run(*KEPT)
        assert "log" not in disk.has
    else:
        with pytest.raises(AssertionError):  # such a file system has none of it
            run(*KEPT)
        assert "log" in disk.has
