"""What a step's program finds of its process: audit, signals; and a step whose streams cannot be copied."""

from __future__ import annotations

import os
import pwd
import shutil
from pathlib import Path

import pytest

from rootful.node import NOBODY, OTHER, Node

LOGINUID = Path("/proc/self/loginuid")
NO_FORK = """
import errno, os
def slurm_spank_task_post_fork(sp, ac, argv):
    def refuse():
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    os.fork = refuse
    return 0
"""


@pytest.mark.skipif(not LOGINUID.exists(), reason="a kernel without audit")
@pytest.mark.parametrize("user", [None, NOBODY, OTHER])
def test_audit_is_told_whose_a_program_is(node: Node, user: pwd.struct_passwd | None) -> None:
    """Not nobody's, nor that of the admin who has started the service."""
    uid = str(0 if user is None else user.pw_uid)
    epilog = node.scratch / "epilog"
    epilog.write_text("#!/bin/sh\ncat /proc/self/loginuid > epilog.out\n", encoding="utf-8")
    epilog.chmod(0o755)
    before = LOGINUID.read_text(encoding="ascii")
    done = node.run("-n2", f"--task-epilog={epilog}", "sh", "-c", "echo $(cat /proc/self/loginuid)", user=user)
    assert done.stdout.split() == [uid, uid], done.stderr
    assert (node.scratch / "epilog.out").read_text(encoding="ascii") == uid
    assert LOGINUID.read_text(encoding="ascii") == before


def test_no_signal_is_ignored(node: Node) -> None:
    """libc ignores two of its own, without a name, in what it spawns."""
    done = node.run("grep", "^SigIgn", "/proc/self/status", user=NOBODY)
    assert done.stdout.split() == ["SigIgn:", "0" * 16], done.stderr
    python = shutil.which("python3", path="/usr/bin:/bin") or "python3"
    killed = node.run(python, "-c", "import os; os.kill(os.getpid(), 33)", user=NOBODY)
    assert killed.returncode == 128 + 33


def test_streams_that_cannot_be_copied_fail_the_step_in_one_line(node: Node) -> None:
    """It was a traceback in the log, and NODE_FAIL."""
    node.plugin("stingy", NO_FORK)
    node.plugstack("required stingy\n")
    done = node.run("-l", "-n2", "echo", "on", user=NOBODY)
    why = f"fork a process that copies streams: {os.strerror(11)}"
    assert (done.returncode, done.stdout) == (1, "")
    assert why in done.stderr
    record = node.record(node.last_job())
    assert (record["state"], record["reason"]) == ("FAILED", why)
    assert "Traceback" not in node.logged()
