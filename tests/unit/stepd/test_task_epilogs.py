"""The scripts after a task: what they have written reaches the step's user."""

from __future__ import annotations

import fcntl
import os
import resource
import select
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from nodectl.launch.stepd.task_epilogs import TaskEpilogs, _Scripts

HIGH = 1500  # more than select(2) takes


@pytest.fixture
def _many_descriptors() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= before[1] <= HIGH:
        pytest.skip("this process may not have so many descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.usefixtures("_many_descriptors")
def test_a_step_with_many_descriptors_passes_on_what_a_script_has_written() -> None:
    """A step runner with a thousand descriptors, as of a step with --preload, fell over its first script."""
    told: list[str] = []
    reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    pipe = fcntl.fcntl(reader, fcntl.F_DUPFD_CLOEXEC, HIGH)
    os.close(reader)
    links = SimpleNamespace(launcher_backlog=lambda: 0, broadcast_line=told.append)
    run: Any = SimpleNamespace(private=[pipe], links=links, step="7.0")
    poll = select.poll()
    epilogs = TaskEpilogs(run, poll, lambda _: None)
    task: Any = SimpleNamespace(number=0)
    scripts = _Scripts(task, [])
    scripts.errors, epilogs._by_pipe[pipe] = pipe, scripts
    poll.register(pipe, select.POLLIN)
    os.write(writer, b"cleaned up\n")
    epilogs._pass_on(scripts)  # a process that the script has left behind still holds the pipe
    assert (told, run.private, scripts.errors) == (["cleaned up"], [], -1)
    os.close(writer)
