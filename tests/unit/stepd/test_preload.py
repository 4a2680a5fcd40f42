"""The warm interpreter of a step, as the step runner sees it."""

from __future__ import annotations

import errno
import os
import select
from types import SimpleNamespace
from typing import Any

import pytest

from nodectl.launch.stepd import preload
from nodectl.launch.stepd.run import LaunchFailed
from nodectl.model.states import CANCELLED, RUNNING


def test_no_module_is_imported_for_a_client_that_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its streams have come all the same: the import is the first that runs of the user's."""
    step = SimpleNamespace(container={}, mem_policies=[])
    plugins = {"spank": SimpleNamespace(has=lambda _: False), "node": SimpleNamespace(stacks={"task": ()})}
    run: Any = SimpleNamespace(step=step, state=RUNNING, reason="", **plugins)

    def turn(_: float | None) -> None:
        run.state = CANCELLED

    def start(_: preload.Preload) -> None:
        raise AssertionError("the interpreter was started")

    monkeypatch.setattr(preload.Preload, "start", start)
    with pytest.raises(LaunchFailed):
        preload.begin(run, SimpleNamespace(turn=turn))  # type: ignore[arg-type]


def test_interpreter_that_could_not_be_forked_leaves_a_step_that_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with a limit of processes: the runner has to write the step's record."""

    def refuse(*_: object) -> None:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(preload, "fork_beside", refuse)
    poll = select.poll()
    reaper: Any = SimpleNamespace(watch=lambda fd: poll.register(fd, select.POLLIN), unwatch=poll.unregister)
    run: Any = SimpleNamespace(private=[], step=SimpleNamespace(container_id=0))
    interpreter = preload.Preload(run, reaper)
    with pytest.raises(BlockingIOError):
        interpreter.start()
    interpreter.finish()
    assert (run.private, interpreter._words, interpreter._socket) == ([], -1, -1)
