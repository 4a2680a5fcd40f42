"""In which cgroup a process is, and whose child, of what the kernel says in lines."""

from __future__ import annotations

import os

import pytest

from nodectl.kernel import processes, pseudo_file


def test_a_name_with_a_carriage_return_is_no_line_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel permits it, in a v1 hierarchy that is a user's own as well: its line comes before the real one."""
    lines = "2:memory:/mine/a\r0::/system.slice/x.scope/job_7/step_0/user/task_0\n1:cpuset:/\n0::/user.slice\n"
    monkeypatch.setattr(pseudo_file, "read", lambda path: os.fsencode(lines))
    assert processes.cgroup_of(1) == "/user.slice"


def test_a_process_chooses_its_name_and_not_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    assert processes.parent_of(os.getpid()) == os.getppid()
    monkeypatch.setattr(pseudo_file, "read", lambda path: b"7 (a) S 1 (b) R 42 7 7 0 -1\n")
    assert processes.parent_of(7) == 42
    monkeypatch.undo()
    with pytest.raises(OSError, match="No such file"):
        processes.parent_of(1 << 30)
