"""The log: what is written is what is read, whatever has happened to the file in between."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodectl.bulk import joblog
from nodectl.bulk.command import Bulk
from nodectl.bulk.options import BulkParser
from nodectl.client.command import Failed

# Written by GNU parallel 20221122: parallel --joblog FILE 'echo {}; exit {}' ::: 0 3, and one that timed out.
PARALLELS = (
    joblog.HEADER
    + "1\t:\t1795362526.158\t     0.000\t0\t2\t0\t0\techo 0; exit 0\n"
    + "2\t:\t1795362526.161\t     0.003\t0\t2\t3\t0\techo 3; exit 3\n"
    + "3\t:\t1795362526.338\t     1.756\t0\t0\t-1\t15\tsleep 3\n"
)


def test_a_line_is_as_parallel_writes_it(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = joblog.JobLog(str(path), keep=False)
    log.ended(1, 1795362526.158, 0.0, 2, 0, 0, "echo 0; exit 0")
    log.ended(2, 1795362526.161, 0.003, 2, 3, 0, "echo 3; exit 3")
    log.ended(3, 1795362526.338, 1.756, 0, -1, 15, "sleep 3")
    log.close()
    assert path.read_text() == PARALLELS


def test_what_parallel_has_written_is_known(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(PARALLELS)
    known = joblog.read(str(path), lines=True)
    assert [known.has_ended(number) for number in range(5)] == [False, True, True, True, False]
    assert [known.has_ended(number, well=True) for number in range(5)] == [False, True, False, False, False]
    assert known.lines == {2: "echo 3; exit 3", 3: "sleep 3"}


def test_the_latest_line_of_a_command_counts(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(PARALLELS + PARALLELS.splitlines()[2].replace("\t3\t0\t", "\t0\t0\t") + "\n")
    known = joblog.read(str(path), lines=True)
    assert known.has_ended(2, well=True)
    assert known.lines == {3: "sleep 3"}


def test_a_command_of_several_lines_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = joblog.JobLog(str(path), keep=False)
    log.ended(1, 1.0, 0.0, 0, 1, 0, "echo 'a\nb'\tc\udcff")
    log.close()
    assert path.read_bytes().splitlines()[1].endswith(b"echo 'a\0b'\tc\xff")
    assert joblog.read(str(path), lines=True).lines == {1: "echo 'a\nb'\tc\udcff"}


@given(cut=st.integers(0, len(PARALLELS)), zeros=st.integers(0, 5000))
def test_a_log_cut_anywhere_is_mended_and_tells_what_is_whole(
    tmp_path_factory: pytest.TempPathFactory, cut: int, zeros: int
) -> None:
    path = tmp_path_factory.mktemp("cut") / "log"
    left = PARALLELS.encode()[:cut]
    path.write_bytes(left + bytes(zeros))
    whole = left[: left.rfind(b"\n") + 1]
    known = joblog.read(str(path))
    log = joblog.JobLog(str(path), keep=True)
    log.ended(9, 2.0, 0.0, 0, 0, 0, "true")
    log.close()
    assert path.read_bytes().startswith(whole or joblog.HEADER.encode())
    lines = path.read_text().splitlines()
    assert len(lines) == max(len(whole.splitlines()), 1) + 1
    assert all(len(line.split("\t")) == 9 for line in lines)
    ended = {int(line.split("\t")[0]) for line in whole.decode().splitlines()[1:]}
    assert {number for number in range(10) if known.has_ended(number)} == ended


def test_another_kind_of_file_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    path.write_text("my notes\nwithout an end")
    with pytest.raises(Failed, match="another kind of file"):
        joblog.JobLog(str(path), keep=True)
    with pytest.raises(Failed, match="another kind of file"):
        joblog.read(str(path))
    assert path.read_text() == "my notes\nwithout an end"


def test_two_at_a_time_do_not_write_one_log(tmp_path: Path) -> None:
    path = str(tmp_path / "log")
    first = joblog.JobLog(path, keep=True)
    with pytest.raises(Failed, match="another nodectl bulk"):
        joblog.JobLog(path, keep=True)
    first.close()
    joblog.JobLog(path, keep=True).close()


def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(Failed, match="No space left"):
        joblog.JobLog(str(tmp_path / "log"), keep=False)


@pytest.mark.parametrize("kind", ["fifo", "device", "terminal", "directory", "socket"])
def test_what_is_no_regular_file_holds_nobody_up(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "log"
    ends = os.openpty()
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as sock:
            sock.bind(str(path))
    else:
        path.symlink_to("/dev/null" if kind == "device" else os.ttyname(ends[1]))
    for use in (lambda: joblog.JobLog(str(path), keep=False), lambda: joblog.read(str(path))):
        with pytest.raises(Failed, match=r"not a regular file|Is a directory|No such device"):
            use()
    os.set_blocking(ends[0], False)
    with pytest.raises(BlockingIOError):  # nothing was written to it
        os.read(ends[0], 1)
    for end in ends:
        os.close(end)


def test_a_lock_that_a_stranger_holds_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(PARALLELS)
    with path.open("rb") as stranger:
        fcntl.flock(stranger, fcntl.LOCK_SH)
        with pytest.raises(Failed, match="another nodectl bulk"):
            joblog.JobLog(str(path), keep=False)
    assert path.read_text() == PARALLELS


def test_a_line_that_is_written_in_many_pieces_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, write = tmp_path / "log", os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:7]))
    log = joblog.JobLog(str(path), keep=False)
    for number in (1, 2):
        log.ended(number, 1.0, 0.0, 0, 1, 0, f"echo {number}")
    log.close()
    assert joblog.read(str(path), lines=True).lines == {1: "echo 1", 2: "echo 2"}


def test_a_log_that_is_still_written_is_not_read_for_what_is_left(tmp_path: Path) -> None:
    """What ends between the read and the lock would run again."""
    path = str(tmp_path / "log")
    other = joblog.JobLog(path, keep=True)
    words = ["--joblog", path, "--resume", "echo", ":::", "a"]
    with pytest.raises(Failed, match="another nodectl bulk"):
        Bulk(None, None, BulkParser().parse(words))  # type: ignore[arg-type]  # nothing is launched
    Bulk(None, None, BulkParser().parse(["--dry-run", *words]))  # type: ignore[arg-type]
    other.close()


def test_no_number_of_a_log_costs_memory_without_bound(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(PARALLELS.replace("\n3\t", "\n99999999999999999999\t"))
    assert not joblog.read(str(path)).has_ended(99999999999999999999)
