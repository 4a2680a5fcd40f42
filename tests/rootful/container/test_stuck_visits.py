"""What comes with a visit may never close: then processes of its user's wait for that, and none of root's."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import pytest

from rootful import raw
from rootful.fuse import unanswered_file
from rootful.hostile import as_user
from rootful.node import NOBODY, Node, wait_until

CALLER = 3


def facts(pid: int) -> tuple[int, str]:
    """Uid and state of a process; of one that has ended nobody's."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except (FileNotFoundError, ProcessLookupError):
        return -1, ""
    lines = dict(line.split(":\t", 1) for line in text.splitlines())
    return int(lines["Uid"].split()[0]), lines["State"][0]


def visit(node: Node) -> dict[int, int]:
    """The uids of the processes that serve visits, by their pids."""
    return {pid: facts(pid)[0] for pid in node.service("nodectl-errand")}


@pytest.mark.skipif(not os.path.exists("/dev/fuse"), reason="no file system in user space here")
@pytest.mark.parametrize("place", [0, CALLER])
def test_a_file_whose_close_has_no_answer_is_never_closed_by_root(node: Node, place: int) -> None:
    client = node.popen("sh", "-c", "echo ready; sleep 1000", user=NOBODY)
    assert client.stdout is not None
    assert client.stdout.readline() == "ready\n"
    job = node.last_job()
    path = node.scratch / "file"
    with unanswered_file(path):

        def act() -> None:
            null = os.open("/dev/null", os.O_RDWR)
            mine = [null, null, null, os.pipe()[0]]
            mine[place] = os.open(path, os.O_RDWR)
            sock = raw.connect(node)
            parameters = {"job": job, "step": 0, "argv": ["true"], "environment": {}}
            socket.send_fds(sock, [raw.call("org.nodectl.Enter", parameters=parameters)], mine)
            sock.detach()

        with as_user(act):
            wait_until(lambda: NOBODY.pw_uid in visit(node).values(), "a process of the user's serves the visit")
            assert node.run("true", user=NOBODY).returncode == 0
            begun = visit(node)
            for pid in begun:
                os.kill(pid, signal.SIGKILL)
            wait_until(lambda: all(facts(pid)[0] == -1 for pid in begun if begun[pid] == 0), "none of root's is left")
    node.nodectl("signal", "-s", "KILL", str(job))
    client.communicate()
