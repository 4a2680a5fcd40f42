"""`nodectl bulk` over nodes that are lost, and over a cable that is cut for a moment."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.bed import Bed
from cluster.user import User
from rootful.node import NOBODY, wait_until

_SLOTS = 6


@pytest.fixture
def place(slurm: Bed) -> Iterator[Path]:
    """A directory that all nodes share."""
    found = slurm.home(NOBODY) / "place"
    found.mkdir()
    os.chown(found, NOBODY.pw_uid, NOBODY.pw_gid)
    yield found
    shutil.rmtree(found)


def _rows(path: Path) -> list[list[str]]:
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def _logged(path: Path) -> list[int]:
    """Commands that are known to have ended."""
    return sorted(int(row[0]) for row in _rows(path)[1:])


def test_what_is_known_to_have_ended_does_not_run_again_when_the_clients_node_was_lost(user: User, place: Path) -> None:
    """Neither does anything stay away."""
    begun, log, go = (place / name for name in ("begun", "log", "go"))
    numbers = range(1, 61)
    program = (
        f"cd {place}; echo {{}} $SLURMD_NODENAME >>begun; [ {{}} -le 20 ] || while [ ! -e go ]; do sleep 0.05; done"
    )
    words = (f"--joblog={log}", program, ":::", *map(str, numbers))
    client = user.popen("bulk", *words, machine="n3")
    try:
        wait_until(lambda: len(_rows(begun)) == 20 + _SLOTS and len(_logged(log)) == 20, "all slots wait")
        user.bed.kill("n3")
        client.communicate()
        ended = _logged(log)
        go.touch()
        done = user.nodectl("bulk", "--resume", *words, machine="n1")
        assert (done.returncode, done.stderr) == (0, "")
    finally:
        user.bed.boot("n3")
    counted = Counter(int(row[0]) for row in _rows(begun))
    assert ended == [*range(1, 21)]
    assert all(counted[number] == 1 for number in ended)
    assert sorted(counted) == _logged(log) == [*numbers]


def test_a_cable_that_is_cut_for_a_moment_costs_no_command(user: User, place: Path) -> None:
    """What its node had begun ends meanwhile, and is told when the cable is whole."""
    begun, ended, go, log = (place / name for name in ("begun", "ended", "go", "log"))
    numbers = range(1, 61)
    wait = "while [ ! -e go ]; do sleep 0.05; done"
    program = f"cd {place}; echo {{}} $SLURMD_NODENAME >>begun; {wait}; echo {{}} $SLURMD_NODENAME >>ended"
    client = user.popen("bulk", f"--joblog={log}", program, ":::", *map(str, numbers))
    wait_until(lambda: len(_rows(begun)) == _SLOTS, "all slots have a command")
    there = [row for row in _rows(begun) if row[1] == "n3"]
    user.bed.cut("n3")
    try:
        go.touch()
        wait_until(lambda: all(row in _rows(ended) for row in there), "those of n3 have ended")
        assert not {int(row[0]) for row in there} & {*_logged(log)}
    finally:
        user.bed.mend("n3")
    _, error = client.communicate()
    assert (client.returncode, error) == (0, "")
    assert sorted(int(row[0]) for row in _rows(begun)) == _logged(log) == [*numbers]
