"""A step's MPI server that cannot be started."""

from __future__ import annotations

import errno
from types import SimpleNamespace
from typing import Any

import pytest

import descriptors
from nodectl.launch.stepd.mpi import Mpi
from nodectl.model import launch_order
from nodectl.model.launch_order import Hook
from nodectl.model.mpi_server import MpiServer


class Run(SimpleNamespace):
    """As much of one as is wanted until then."""

    def spawn(self) -> int:
        raise BlockingIOError(errno.EAGAIN, "fork")

    def call(self, row: Hook, *_: object) -> None:
        """Note the row."""
        self.called.append(row)


def test_a_server_that_cannot_be_started_leaves_no_descriptor() -> None:
    """Its runner may serve further steps. There is no process to be had."""
    step = SimpleNamespace(nnodes=1, ntasks=2)
    tasks = [SimpleNamespace(number=number) for number in range(2)]
    fds = SimpleNamespace(of_user=[])
    ended: list[str] = []
    run: Any = Run(called=[], private=[], tasks=tasks, group=None, step=step, fds=fds, state="FAILED")
    termination = SimpleNamespace(suspension=SimpleNamespace(suspended=False), end=lambda *_: ended.append("ended"))
    reaper: Any = SimpleNamespace(turn=None, termination=termination)
    with descriptors.none_left():
        server = Mpi(run, MpiServer(["/bin/true"], {}, connected=True), reaper)
        with pytest.raises(OSError, match="fork"):
            server.start()
        server.finish()
    assert run.called == [launch_order.MPI_CLIENT_FINI]
    assert run.private == []
