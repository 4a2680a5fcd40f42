"""Lines of the service's log as the journal gets them, over a real socket; and the table of what they mean."""

from __future__ import annotations

import ast
import os
import re
import socket
import struct
from pathlib import Path

import pytest

import nodectl
from nodectl import messages
from nodectl.kernel.log import journal
from nodectl.kernel.log.table import BY_NAME, MESSAGES

SOURCES = Path(str(nodectl.__file__)).parent
# Whose processes write into the log, and what in them speaks to somebody else: a command in its terminal.
SERVICE = ("launch", "mpi", "plugin_host", "selection", "service", "spank")


def fields(data: bytes) -> dict[str, str]:
    """The other direction of the protocol."""
    found = {}
    while data:
        line, _, data = data.partition(b"\n")
        name, equals, value = line.partition(b"=")
        if not equals:
            size = int.from_bytes(data[:8], "little")
            value, data = data[8 : 8 + size], data[8 + size + 1 :]
        found[name.decode()] = value.decode()
    return found


def test_a_line_has_fields_beside_its_text(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as taker:
        taker.bind(str(tmp_path / "socket"))
        facts = {"job": 7, "step": "7.0", "uid": 0}
        journal.Journal(str(tmp_path / "socket")).write("nodectl daemon: ended", "step-ended", facts, -1)
        told = fields(taker.recv(4096))
    assert told["MESSAGE"] == "nodectl daemon: ended"
    assert told["MESSAGE_ID"] == BY_NAME["step-ended"][1]
    assert (told["NODECTL_JOB"], told["NODECTL_STEP"], told["USER_ID"]) == ("7", "7.0", "0")
    assert (told["PRIORITY"], told["SYSLOG_IDENTIFIER"], told["NODECTL_MESSAGE"]) == ("6", "nodectl", "step-ended")


def test_nobody_s_words_become_a_field() -> None:
    forged = "a\nUSER_ID=0\nNODECTL_JOB=1"
    told = fields(journal.datagram(forged, "plugin-said", {"job": 7}))
    assert (told["MESSAGE"], told["NODECTL_JOB"]) == (forged, "7")
    assert "USER_ID" not in told


def test_nobody_s_words_become_a_line_of_the_log() -> None:
    """An exception of a plugin quotes the option that a user has given."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        messages.log_is(writer)
        messages.tell("script-failed", "job 7: no such color: red\nnodectl daemon: ended step=8.0\x1b[2J")
        os._exit(0)
    os.close(writer)
    os.waitpid(pid, 0)
    with os.fdopen(reader, encoding="utf-8") as log:
        assert log.read() == "nodectl daemon: job 7: no such color: red\\nnodectl daemon: ended step=8.0\\x1b[2J\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may name another process")
@pytest.mark.parametrize("is_there", [True, False], ids=["there", "gone"])
def test_a_fork_s_lines_count_as_those_of_the_process_it_comes_from(tmp_path: Path, is_there: bool) -> None:
    """A flood of users' tasks, which live in the unit of a step's runner, keeps none of them out."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as taker:
        taker.bind(str(tmp_path / "socket"))
        taker.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        to = journal.Journal(str(tmp_path / "socket"))
        if not is_there:
            to._pid = 1 << 30  # no process has such a number
        pid = os.fork()
        if pid == 0:
            to.write("said", "plugin-said", {}, -1)
            os._exit(0)
        os.waitpid(pid, 0)
        data, ((_, _, sender),), _, _ = taker.recvmsg(4096, 100)
    assert fields(data)["MESSAGE"] == "said"
    assert struct.unpack("3i", sender) == (os.getpid() if is_there else pid, 0, 0)


def test_a_journal_that_hangs_is_not_waited_for_and_what_is_lost_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    ours, theirs = socket.socketpair()
    taker = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    with taker, ours, theirs:
        taker.bind(str(path))
        to = journal.Journal(str(path))
        for number in range(100_000):  # nobody reads: first the datagrams have no room, then the stream has none
            to.write(f"line {number} {'x' * 200}", "plugin-said", {}, ours.fileno())
            if to._lost:
                break
        assert to._lost == 1
        assert theirs.recv(1 << 22).startswith(b"<6>line ")
        assert _taken(taker)[0].startswith("line 0 ")
        to.write("the last", "plugin-said", {}, ours.fileno())
        assert _taken(taker) == ["nodectl: the journal did not take 1 lines", "the last"]
        assert to._lost == 0


def _taken(taker: socket.socket) -> list[str]:
    found = []
    taker.setblocking(False)
    while True:
        try:
            found.append(fields(taker.recv(4096))["MESSAGE"])
        except BlockingIOError:
            return found


def test_without_a_journal_the_stream_gets_it_with_its_weight(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        journal.Journal(str(tmp_path / "nobody")).write("drained", "node-drained", {}, ours.fileno())
        assert theirs.recv(100) == b"<4>drained\n"


def test_it_is_known_whether_stderr_is_the_journal_s(tmp_path: Path) -> None:
    fd = os.open(tmp_path / "file", os.O_WRONLY | os.O_CREAT)
    try:
        status = os.fstat(fd)
        assert journal.is_kept({b"JOURNAL_STREAM": b"%d:%d" % (status.st_dev, status.st_ino)}, fd)
        assert not journal.is_kept({b"JOURNAL_STREAM": b"%d:%d" % (status.st_dev, status.st_ino + 1)}, fd)
        assert not journal.is_kept({}, fd)
    finally:
        os.close(fd)


def test_every_message_has_a_number_of_its_own_a_meaning_and_where_something_is_wrong_a_remedy() -> None:
    assert len({number for _, number, *_ in MESSAGES}) == len(BY_NAME) == len(MESSAGES)
    for name, number, priority, meaning, remedy in MESSAGES:
        assert re.fullmatch(r"[0-9a-f]{32}", number), name
        assert meaning.endswith("."), name
        assert remedy.endswith(".") or (not remedy and priority > 4), name


def test_what_the_service_writes_has_its_place_in_the_table_and_what_is_there_is_written() -> None:
    written, elsewhere = {"runner-said", "log-lost"}, []
    paths = [path for package in SERVICE for path in (SOURCES / package).rglob("*.py")]
    for path in [*paths, SOURCES / "messages.py"]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func)
            if called.endswith(("tell", "to_log")) and node.args:
                written |= {arg.value for arg in node.args if isinstance(arg, ast.Constant) and arg.value in BY_NAME}
            if called == "messages.tell":
                assert isinstance(node.args[0], ast.Constant), f"{path}:{node.lineno}"
                assert node.args[0].value in BY_NAME, f"{path}:{node.lineno}"
            if path.name == "warm.py":
                continue  # a program of the user's, which speaks as Python does
            if called == "sys.stderr.write" or (called == "print" and "sys.stderr" in ast.unparse(node)):
                elsewhere.append(f"{path}:{node.lineno}")
    assert written == BY_NAME.keys()
    assert not elsewhere, "the log has messages.tell"
