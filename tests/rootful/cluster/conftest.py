"""Fixtures of tests within a job of Slurm's, where root's service runs parts of steps."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from rootful.node import Node, running, wait_until
from rootful.slurms import JOB, SlurmJob, scope


@pytest.fixture
def slurm() -> Iterator[SlurmJob]:
    """A job of NOBODY's; its processes and cgroups are gone at the end."""
    with scope(f"nodectl-scope-{os.getpid()}") as top:
        yield SlurmJob(top, JOB)


@pytest.fixture
def node(slurm: SlurmJob) -> Iterator[Node]:
    """The service; the job ends before it does."""
    with running(slurm_scope=slurm.scope, kill_wait=600) as started:  # nobody is waited for
        yield started
        wait_until(lambda: not slurm.ours(), "no step is left")  # else Slurm's directories stay
        slurm.end()
