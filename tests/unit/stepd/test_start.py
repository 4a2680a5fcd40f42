"""How tasks are started where the kernel refuses the ways that cost least."""

from __future__ import annotations

import errno
import os
import types
from typing import Any

import pytest

from nodectl.launch.stepd.start import start


class Kernel:
    """What of it is refused, with this errno, and how often it was asked."""

    def __init__(self, number: int, cause: Exception | None = None) -> None:
        self.asked: list[str] = []
        self._number = number
        self._cause = cause

    def launch(self, *_: object) -> int:
        self.asked.append("share")
        raise OSError(self._number, os.strerror(self._number)) from self._cause

    def fork_into(self, _: int) -> int:
        self.asked.append("into")
        raise OSError(self._number, os.strerror(self._number))

    def spawn(self) -> int:
        self.asked.append("fork")
        return 1


def start_three(monkeypatch: pytest.MonkeyPatch, kernel: Kernel) -> list[str]:
    monkeypatch.setattr("nodectl.launch.stepd.start.launch", kernel.launch)
    monkeypatch.setattr("nodectl.launch.stepd.start.prepare", lambda _: None)
    monkeypatch.setattr("nodectl.kernel._kernel.fork_into", kernel.fork_into)
    monkeypatch.setattr("nodectl.launch.stepd.start._move", lambda *_: None)
    monkeypatch.setattr("os.setpgid", lambda *_: None)
    run: Any = types.SimpleNamespace(
        may_share_memory=True, may_fork_into_cgroup=True, step=types.SimpleNamespace(process_group=1),
        caller=types.SimpleNamespace(threaded=False), spawn=kernel.spawn, enter=lambda _: 0,
        leave=lambda *_, **__: None,
    )  # fmt: skip
    place = types.SimpleNamespace(open=lambda: os.open("/", os.O_PATH), full_path="/")
    group: Any = types.SimpleNamespace(make=lambda: place, full_path="/")
    for number in range(3):
        task = types.SimpleNamespace(pid=-1, local_id=number, number=number)
        child: Any = types.SimpleNamespace(task=task, placement=None, has_terminal=False)
        start(run, child, group, [])
    return kernel.asked


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EPERM, errno.EINVAL])
def test_what_the_kernel_refuses_it_is_asked_for_once_in_a_step(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    assert start_three(monkeypatch, Kernel(number)) == ["share", "into", "fork", "fork", "fork"]


def test_what_a_plugin_wanted_done_does_not_count_as_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel(errno.EINVAL, ValueError("no operation"))
    assert start_three(monkeypatch, kernel) == ["share", "into", "fork", "share", "fork", "share", "fork"]
