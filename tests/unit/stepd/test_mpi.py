"""A step's MPI server that cannot be started."""

from __future__ import annotations

import errno
from types import SimpleNamespace
from typing import Any

import pytest

import descriptors
from nodectl.model.mpi_server import MpiServer
from nodectl.stepd import mpi_part
from nodectl.stepd.mpi import Mpi


class Run(SimpleNamespace):
    """As much of one as is wanted until then."""

    def spawn(self) -> int:
        raise BlockingIOError(errno.EAGAIN, "fork")


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_server_that_cannot_be_started_leaves_no_descriptor(monkeypatch: pytest.MonkeyPatch, nodes: int) -> None:
    """Its runner may serve further steps. Of several nodes the agent has gone, of one there is no process to be had."""

    def refuses(_step: object) -> int:
        raise ConnectionRefusedError(errno.ECONNREFUSED, "connect")

    monkeypatch.setattr(mpi_part, "connect", refuses)
    step = SimpleNamespace(nnodes=nodes, ntasks=2)
    tasks = [SimpleNamespace(number=number) for number in range(2)]
    run: Any = Run(private=[], tasks=tasks, group=None, step=step)
    reaper: Any = SimpleNamespace(turn=None, termination=SimpleNamespace(suspension=SimpleNamespace(suspended=False)))
    with descriptors.none_left():
        server = Mpi(run, MpiServer(["/bin/true"], {}, connected=True), reaper)
        with pytest.raises(OSError, match=r"fork|connect"):
            server.start()
        server.finish()
    assert run.private == []
