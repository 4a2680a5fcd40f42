"""A file for the disks of all nodes, which share none."""

from __future__ import annotations

import os

from cluster.bed import Bed
from cluster.machine import THREE
from cluster.user import User
from rootful.node import NOBODY


def test_a_file_is_on_the_disk_of_each_node(slurm: Bed) -> None:
    source = slurm.home(NOBODY) / "input"
    source.write_bytes(os.urandom(1_000_000))
    with slurm.salloc() as job:
        user = User(slurm, job)
        user.start("head")
        try:
            for machine, words in (("head", ()), ("n2", ("--force",))):
                done = user.nodectl("bcast", *words, str(source), "/tmp/copy", machine=machine)
                assert (done.returncode, done.stderr) == (0, "")
            again = user.nodectl("bcast", str(source), "/tmp/copy")
            assert (again.returncode, len(again.stderr.splitlines())) == (1, len(THREE))
            for name in THREE:
                assert slurm.run("cmp", str(source), "/tmp/copy", machine=name).returncode == 0
            assert slurm.run("ls", "/tmp/copy", machine="head").returncode != 0
        finally:
            for name in THREE:
                slurm.run("rm", "-f", "/tmp/copy", machine=name)
    source.unlink()
