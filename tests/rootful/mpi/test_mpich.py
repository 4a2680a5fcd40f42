"""Programs that MPICH's own compiler has made, as they are: they speak PMI-1 with the server of --mpi=pmi2."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from rootful.mpi_programs import compiled
from rootful.node import NOBODY, Node, wait_until

SHARED_MEMORY = Path("/dev/shm")  # where MPICH shares memory


def test_a_user_sees_no_option_to_be_needed(served: Node) -> None:
    done = served.run("-n2", compiled("cpi", served.dir), user=NOBODY)
    assert (done.stdout, done.returncode, done.stderr) == ("2 tasks: pi is 3.141593\n", 0, "")


@pytest.mark.parametrize("ntasks", [2, 8, 32])
def test_pi_is_the_same_for_any_number_of_tasks(served: Node, ntasks: int) -> None:
    done = served.run(f"-n{ntasks}", compiled("cpi", served.dir), user=NOBODY)
    assert (done.stdout, done.returncode) == (f"{ntasks} tasks: pi is 3.141593\n", 0), done.stderr


@pytest.mark.parametrize("ntasks", [2, 8, 32])
def test_each_pair_plays_ping_pong(served: Node, ntasks: int) -> None:
    done = served.run(f"-n{ntasks}", "--mpi=pmi2", compiled("ping_pong", served.dir), user=NOBODY)
    assert done.returncode == 0, done.stderr
    told = {f"task {rank} of {ntasks}: 11 rounds" for rank in range(ntasks)}
    assert set(done.stdout.splitlines()) == told


def test_mpi_abort_ends_the_step_with_one_line_of_ours(served: Node) -> None:
    done = served.run("-n4", compiled("cpi", served.dir), "7", user=NOBODY)
    assert done.returncode == 128 + signal.SIGTERM
    ours = [line for line in done.stderr.splitlines() if "the step ends" in line]
    assert len(ours) == 1
    assert ours[0].endswith("task 1 called MPI_Abort with code 7: the step ends")


def test_a_killed_task_ends_the_step(served: Node) -> None:
    mark = served.scratch / "pid"
    client = served.popen("-n3", compiled("waits", served.dir), str(mark), user=NOBODY)
    wait_until(lambda: mark.exists() and mark.read_text(), "task 0 waits")
    os.kill(int(mark.read_text()), signal.SIGKILL)
    _, said = client.communicate(timeout=60)
    assert client.returncode == 128 + signal.SIGTERM
    assert "task 0 was ended by signal 9 before MPI_Finalize: the step ends" in said


def test_alone_by_mpi_none_each_task_is_told_so_once(served: Node) -> None:
    done = served.run("-n3", "--mpi=none", compiled("cpi", served.dir), user=NOBODY)
    assert (done.stdout, done.returncode) == ("1 tasks: pi is 3.141593\n" * 3, 0)
    assert done.stderr.count("will be alone in its world (--mpi=pmi2 lets them find each other)") == 1
    done = served.run("-n3", "--mpi=none", "true", user=NOBODY)
    assert done.stderr == ""


def test_nothing_is_left_of_fifty_steps(served: Node) -> None:
    program = compiled("cpi", served.dir)
    before = set(SHARED_MEMORY.iterdir())
    for number in range(50):
        words = [program, "3"] if number % 10 == 9 else [program]  # every tenth is aborted
        done = served.run("-n2", *words, user=NOBODY)
        assert done.returncode == (143 if len(words) > 1 else 0), done.stderr
    served.assert_clean()
    assert not [path for path in set(SHARED_MEMORY.iterdir()) - before if path.owner() == NOBODY.pw_name]
