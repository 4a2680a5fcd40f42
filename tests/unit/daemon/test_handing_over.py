"""When a client gets its ends of the way to its stepd, and when it is answered: its streams follow the answer, and
neither the daemon nor the forkserver is to close any of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nodectl.model.wire import framing
from nodectl.model.wire.dispatch import Refused
from nodectl.service.daemon.methods.start import StepStart

TOO_MUCH = Refused("LaunchRefused", "max_step_bytes_per_user")


class Launch:
    """A client's call that starts a step, and the forkserver that gets the order."""

    def __init__(self) -> None:
        self.ends: list[int] = []
        self.told: list[Any] = []
        self.held = False
        self.call: Any = SimpleNamespace(
            fds=[0, 1, 2], peer=SimpleNamespace(uid=1000), hand_over=self._hand_over,
            hold_reply=lambda: setattr(self, "held", True), release_reply=lambda: setattr(self, "held", False),
        )  # fmt: skip
        files = SimpleNamespace(listen=lambda: os.open("/dev/null", os.O_RDONLY), spec="/1.0.json")
        step = SimpleNamespace(
            job_id=1, step_id=0, ntasks=1, cgroup="", is_first=True, within=False, secure="none", container_plugin="",
            stack=(),
        )  # fmt: skip
        self.live: Any = SimpleNamespace(
            step=step,
            files=files,
            progress_fd=-1,
            connect=lambda link: link.close(),
            needs_epilog=False,
            size=0,
            take_views=list,
        )
        self.start = cast("Any", StepStart.__new__(StepStart))
        self.start._registry = SimpleNamespace(add=lambda _: None)
        self.start._jobs = SimpleNamespace(prolog_epilog=SimpleNamespace(plugins_of=lambda _: ([], 0)))
        self.start._runners, self.start._config = "", SimpleNamespace(trace=False)
        self.start._warm_runners = SimpleNamespace(of=lambda *_: None)
        self.start._forkserver = SimpleNamespace(submit=self._submit)

    def _hand_over(self, name: object, ends: list[int]) -> None:
        self.ends += ends

    def _submit(self, order: object, plugins: object, fds: list[int], *told: Any) -> None:
        assert len(self.ends) == 3, "a daemon that ends now leaves a step whose client is told that none has begun"
        framing.close(fds)
        self.told += told

    def begin(self) -> None:
        trace = os.open("/dev/null", os.O_RDONLY)
        try:
            self.start._start(self.live, trace, self.call)
        finally:
            os.close(trace)
            os.close(self.live.progress_fd)


@pytest.fixture
def launch() -> Iterator[Launch]:
    made = Launch()
    yield made
    framing.close(made.ends)


def test_a_client_is_answered_when_the_forkserver_has_answered(launch: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StepStart, "_make_files", lambda *_: None)
    launch.begin()
    assert len(launch.ends) == 3
    assert launch.held
    (when_answered,) = launch.told
    when_answered()
    assert not launch.held


def test_a_client_whose_launch_is_refused_gets_no_way_to_a_stepd(
    launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise TOO_MUCH

    monkeypatch.setattr(StepStart, "_make_files", refuse)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(Refused):
        launch.begin()
    assert not launch.ends
    assert not launch.held
    assert len(os.listdir("/proc/self/fd")) == before
