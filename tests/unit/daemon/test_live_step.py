"""A step as the daemon follows it, where the system refuses something; and what its step runner dies of."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from nodectl.launch.stepd import main as stepd
from nodectl.model.step import Step
from nodectl.model.wire import framing
from nodectl.service.daemon.jobs.node_jobs import NodeJobs
from nodectl.service.daemon.steps import live as live_module
from nodectl.service.daemon.steps.files import StepFiles
from nodectl.service.daemon.steps.live import LiveStep

PATIENCE = 60  # seconds


def step_in(directory: Path, on_end: Any = lambda live: live.ended.set_result({})) -> LiveStep:
    step = Step.from_json({"job_id": 7, "cpu_masks": [], "stack": [], "cgroup": "/base/job_7/step_0"})
    return LiveStep(step, StepFiles(str(directory), 7, 0), on_end)


def refuse_once(monkeypatch: pytest.MonkeyPatch, where: object, name: str, number: int) -> None:
    """Let the system refuse the first call of it."""
    real, calls = getattr(where, name), iter((True,))

    def call(*given: Any) -> Any:
        if next(calls, False):
            raise OSError(number, os.strerror(number))
        return real(*given)

    monkeypatch.setattr(where, name, call)


@pytest.mark.parametrize(
    ("where", "name", "number"), [(os, "pidfd_open", errno.EMFILE), (framing, "peer_of", errno.ENOMEM)]
)
def test_a_step_runner_that_cannot_be_reached_now_is_not_taken_for_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: object, name: str, number: int
) -> None:
    """A daemon that has just begun would kill its tasks."""

    async def reach() -> None:
        live = step_in(tmp_path)
        listener = socket.socket(fileno=live.files.listen())
        refuse_once(monkeypatch, where, name, number)
        lost: list[bool] = []
        live.reach(lambda: lost.append(True))
        while live.pid != os.getpid():  # noqa: ASYNC110  # it tries again
            await asyncio.sleep(0)
        assert not lost
        live.close()
        listener.close()

    asyncio.run(asyncio.wait_for(reach(), PATIENCE))


def test_a_step_runner_is_followed_by_its_connection_where_no_descriptor_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def follow() -> None:
        live = step_in(tmp_path)
        ours, theirs = socket.socketpair()
        live.connect(ours)
        refuse_once(monkeypatch, os, "pidfd_open", errno.EMFILE)
        live.watch(os.getpid())
        theirs.close()
        await live.ended

    asyncio.run(asyncio.wait_for(follow(), PATIENCE))


def test_an_end_that_cannot_be_noted_is_one_line_and_noted_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(live_module, "_END_AGAIN", 0.0)

    async def end() -> None:
        live = step_in(tmp_path, lambda live: (live.files.record(), live.ended.set_result({})))
        refuse_once(monkeypatch, os, "open", errno.EMFILE)
        live._finish()
        await live.ended

    asyncio.run(asyncio.wait_for(end(), PATIENCE))
    (line,) = capfd.readouterr().err.splitlines()
    assert "step 7.0: note its end: [Errno 24] Too many open files; this is tried again" in line


@pytest.mark.parametrize("has_order", [False, True])
def test_a_step_runner_that_dies_before_it_has_begun_says_of_what(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, has_order: bool
) -> None:
    """Its client has nothing but the words of the daemon."""

    def fail(*_: object) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    async def end() -> str:
        live = step_in(tmp_path)
        ours, theirs = socket.socketpair()
        live.connect(ours)
        (tmp_path / "7.0.json").write_text('{"job_id": 7, "cpu_masks": [], "stack": []}', encoding="ascii")
        request = {"spec": str(tmp_path / "7.0.json"), "runners": "", "trace": True}
        fds = [-1, -1, -1, theirs.fileno()]
        monkeypatch.setattr(stepd, "sign_in" if has_order else "Order", fail)
        pid = os.fork()
        if pid == 0:
            os.dup2(os.open("/dev/null", os.O_WRONLY), 2)
            stepd.main(request, fds, None, "", None, None)  # type: ignore[arg-type]  # it does not come so far
        os.waitpid(pid, 0)  # noqa: ASYNC222  # it ends at once
        theirs.close()
        await live.ended
        jobs: Any = NodeJobs.__new__(NodeJobs)
        jobs._plugins = None
        return str(jobs._death(live))

    assert asyncio.run(end()) == "the step runner died: OSError: [Errno 12] Cannot allocate memory"
