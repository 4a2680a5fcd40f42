"""job_container/user: directories of a job's own in a node without root."""

from __future__ import annotations

import os
import secrets
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from rootful.at_terminal import at_terminal
from rootful.cluster.agents import agents
from rootful.mpi_programs import MPICH, OPEN_MPI, compiled
from rootful.node import OTHER, PATIENCE, wait_until
from rootful.own import OwnNode, own_node
from rootful.own_contained import (
    CAPABILITIES,
    CLOSED,
    DIRS,
    USER,
    assert_gone,
    contained,
    held,
    number_of,
    out,
    places,
    running,
)  # fmt: skip


@pytest.fixture(scope="module")
def shared() -> Iterator[OwnNode]:
    with contained() as node:
        yield node


@pytest.fixture(scope="module")
def delegated() -> Iterator[OwnNode]:
    with contained(delegated=True) as node:
        yield node


def stepd(node: OwnNode, job: str) -> psutil.Process:
    assert node.daemon is not None
    below = psutil.Process(node.daemon.pid).children(recursive=True)
    (found,) = (one for one in below if one.name() == f"stepd {job}.0")
    return found


def test_a_job_sees_empty_directories_of_its_own_and_leaves_nothing_outside(shared: OwnNode) -> None:
    name = shared.dir.name
    script = "; ".join(f"ls -A {path} | wc -l; touch {path}/{name}; ls {path}" for path in DIRS)
    assert out(shared, "sh", "-c", script).split() == ["0", name] * 3
    assert not any(os.path.exists(f"{path}/{name}") for path in DIRS)
    assert_gone(shared)


def test_two_jobs_do_not_see_each_other(shared: OwnNode) -> None:
    with running(shared):
        assert out(shared, "ls", "-A", *DIRS).split() == ["/dev/shm:", "/tmp:", "/var/tmp:"]
        assert places(shared)
        for place in places(shared):
            status = place.stat()
            assert (status.st_uid, status.st_mode & 0o777) == (OTHER.pw_uid, 0o700)


def test_tasks_of_a_step_share_all_and_a_later_step_what_is_on_a_disk(shared: OwnNode) -> None:
    script = "echo x > $0/$SLURM_PROCID; until [ $(ls $0 | wc -l) = 3 ]; do sleep 0.05; done; ls $0"
    for path in DIRS:
        assert sorted(out(shared, "-n3", "sh", "-c", script, path).split()) == sorted(["0", "1", "2"] * 3)
    with running(shared) as job:
        further = "run", f"--jobid={job}", "--overlap"
        done = shared.nodectl(*further, "sh", "-c", f"ls -A {' '.join(DIRS)}; touch /tmp/later")
        assert done.stdout.split() == ["/dev/shm:", "/tmp:", "held", "/var/tmp:", "held"], done.stderr
        done = shared.nodectl(*further, "ls", "/tmp")
        assert done.stdout.split() == ["held", "later"], done.stderr


def test_tasks_of_a_step_are_in_the_same_namespaces(shared: OwnNode) -> None:
    """As MPI wants it: process_vm_readv(2) and the like are for processes of one user namespace."""
    script = "readlink /proc/self/ns/user /proc/self/ns/mnt"
    found = out(shared, "-n3", "sh", "-c", script).split()
    assert len(set(found)) == 2
    assert os.readlink("/proc/self/ns/user") not in found


def test_streams_and_directory_are_those_of_the_inside(shared: OwnNode) -> None:
    name = f"/tmp/{shared.dir.name}"
    for words in (["-n1"], ["-n2"], ["-n2", "-l"]):
        assert out(shared, *words, "-o", name, "sh", "-c", f"test -e {name} && echo there >&2; cd /tmp; pwd") == ""
    assert not os.path.exists(name)
    job = shared.home / "job"
    done = shared.nodectl("submit", "-D", "/tmp", "-o", str(job), "--wrap=pwd; ls -A; echo end")
    assert done.returncode == 0, done.stderr
    wait_until(lambda: job.exists() and "end" in job.read_text(), "the script has run")
    assert job.read_text() == "/tmp\nend\n"


def test_a_script_reaches_its_node_and_its_steps_see_its_files() -> None:
    """With another directory: a checkout below /tmp would be hidden from its own jobs."""
    with contained('container_dirs = ["/mnt"]\n') as node:
        output = node.home / "steps"
        script = f"touch /mnt/of-script; {shlex.join(node.words('run', '--overlap', 'ls', '/mnt'))}; echo end"
        done = node.nodectl("submit", "-o", str(output), f"--wrap={script}")
        assert done.returncode == 0, done.stderr
        wait_until(lambda: output.exists() and "end" in output.read_text(), "the script has run")
        assert output.read_text().split() == ["of-script", "end"]


@pytest.mark.parametrize("compiler", [MPICH, OPEN_MPI])
def test_tasks_of_an_mpi_program_share_memory(compiler: str) -> None:
    """With /tmp as it is, for the same reason: the server is executed inside."""
    with contained('container_dirs = ["/var/tmp", "/dev/shm"]\n') as node:
        done = node.nodectl("run", "-n4", "--overcommit", compiled("ping_pong", node.dir, compiler))
        assert done.returncode == 0, done.stderr
        assert set(done.stdout.splitlines()) == {f"task {rank} of 4: 11 rounds" for rank in range(4)}


def test_a_node_whose_socket_lies_in_tmp_is_reached_from_within() -> None:
    with own_node(OTHER, started=False) as node:
        node.configure("nodectl.toml", USER)
        place = Path(f"/tmp/nodectl-{OTHER.pw_uid}")
        existed = place.exists()
        how = node.how()
        del how["env"]["XDG_RUNTIME_DIR"]
        script = 'test -S "$NODECTL_SOCKET" && echo reached; ls -A /tmp'
        done = node.nodectl("run", "sh", "-c", script, **how)
        assert (done.returncode, done.stdout.split()) == (0, ["reached", place.name]), done.stderr
        assert_gone(node)
        if not existed:
            place.rmdir()


def test_a_terminal_and_commands_in_bulk_are_inside(shared: OwnNode) -> None:
    how = shared.how()
    argv = shared.words("--user", "run", "--pty", "sh", "-c", "ls -A /tmp | wc -l; tty; touch /tmp/x && echo made")
    with at_terminal(argv, rows=33, columns=99, user=OTHER, env=how["env"], cwd=how["cwd"]) as terminal:
        terminal.wait_for("0\r\n/dev/pts/")
        terminal.wait_for("made")
        assert terminal.wait_for_end() == 0
    paths = [f"/tmp/{shared.home.parent.name}-{name}" for name in "abc"]  # names that no other program has
    done = shared.nodectl("bulk", "-k", "-n2", "sh -c 'echo x >{}; ls -d {}'", ":::", *paths)
    assert (done.returncode, done.stdout.split()) == (0, paths), done.stderr
    assert not [path for path in paths if os.path.exists(path)]


def test_task_prolog_and_epilog_run_inside(shared: OwnNode) -> None:
    proof = shared.home / "proof"
    for name, words in (
        ("before", "echo p > /tmp/p"),
        ("after", f"cat /tmp/p /tmp/t > {proof}; {CAPABILITIES} >> {proof}"),
    ):
        (shared.dir / name).write_text(f"#!/bin/sh\n{words}\n", encoding="utf-8")
        (shared.dir / name).chmod(0o755)
    out(
        shared, f"--task-prolog={shared.dir}/before", f"--task-epilog={shared.dir}/after", "sh", "-c", "echo t > /tmp/t"
    )
    first, second, *capabilities = proof.read_text().split()
    assert (first, second, set(capabilities[1::2])) == ("p", "t", {"0" * 16})


def test_directories_that_were_closed_to_their_owner_are_removed(shared: OwnNode) -> None:
    out(shared, "sh", "-c", CLOSED)
    assert_gone(shared)
    assert "container" not in shared.nodectl("show", "1").stdout


@pytest.mark.parametrize("which", ["daemon first", "stepd first"])
def test_a_job_whose_runner_and_daemon_were_killed_leaves_nothing(which: str) -> None:
    with contained() as node:
        job = held(node)
        number = number_of(job)
        runner = stepd(node, number)
        if which == "daemon first":
            node.stop(signal.SIGKILL)
            runner.kill()
        else:
            runner.kill()
            node.stop(signal.SIGKILL)
        assert places(node) or which == "stepd first"
        node.start()
        assert_gone(node)
        job.kill()
        job.communicate(timeout=PATIENCE)


def test_what_no_daemon_knows_of_is_swept_by_the_next_one_and_a_living_job_is_kept() -> None:
    with contained() as node, running(node) as job:
        (place,) = places(node)
        node.stop(signal.SIGKILL)
        dead = place.with_name("999")
        dead.mkdir()
        (dead / "owner").write_text(f"{node.runtime}/nodectl/steps/999.0.json")
        os.chown(dead, OTHER.pw_uid, OTHER.pw_gid)
        node.start()
        wait_until(lambda: not dead.exists(), "it is swept")
        assert places(node) == [place]
        done = node.nodectl("run", f"--jobid={job}", "--overlap", "ls", "/tmp")
        assert done.stdout == "held\n", done.stderr


def test_a_private_node_leaves_nothing_when_its_command_is_killed() -> None:
    with contained(started=False) as node:
        job = held(node)
        number_of(job)
        assert places(node)
        job.kill()
        job.communicate(timeout=PATIENCE)
        assert_gone(node)


def test_enter_and_bcast_reach_the_jobs_directories(delegated: OwnNode) -> None:
    with running(delegated) as job:
        done = delegated.nodectl("enter", job, "--", "sh", "-c", f"ls /tmp; {CAPABILITIES}")
        first, *found = done.stdout.split()
        assert (first, set(found[1::2])) == ("held", {"0" * 16}), done.stderr
        file = delegated.home / "file"
        file.write_text("whole")
        os.chown(file, OTHER.pw_uid, OTHER.pw_gid)
        done = delegated.nodectl("bcast", str(file), "/tmp/sent", "--job", job)
        assert done.returncode == 0, done.stderr
        assert delegated.nodectl("run", f"--jobid={job}", "--overlap", "cat", "/tmp/sent").stdout == "whole"
    with contained() as node, running(node) as job:
        done = node.nodectl("enter", job, "--", "true")
        assert done.returncode == 1
        assert "the node tracks no cgroups" in done.stderr


def test_steps_of_one_job_share_them_on_each_node_of_a_cluster() -> None:
    """The machine's name is the same for all agents here; their storage is below their own directories."""
    with agents(2, config=USER) as cluster:
        script = f"ls -A /tmp; {CLOSED}; touch /tmp/$SLURMD_NODENAME; test -S $NODECTL_SOCKET && echo reached"
        for words in (("-N2", "-n4", "-l", "sh", "-c", script), ("-N2", "-n2", "-l", "ls", "/tmp")):
            done = cluster.nodectl("run", *words)
            assert done.returncode == 0, done.stderr
        assert sorted(done.stdout.splitlines()) == sorted(
            f"{n}: {name}" for n in (0, 1) for name in ("a", "c", f"n{n}")
        )
        assert not os.path.exists("/tmp/n0")
        assert len(list((cluster.runtime / "nodectl/cluster").glob(f"*/state/containers/*/{cluster.job}"))) == 2


def test_an_agent_and_its_node_that_were_killed_leave_nothing_to_the_next_ones() -> None:
    with agents(1, config=USER) as cluster:
        done = cluster.nodectl("run", "sh", "-c", CLOSED)
        assert done.returncode == 0, done.stderr
        cluster.kill_with_all(0)
        cluster.agents.pop().wait(PATIENCE)
        assert list((cluster.runtime / "nodectl/cluster").glob("*/state/containers/*/*"))
        cluster.job, cluster.secret = cluster.job + 1, secrets.token_hex(32)
        cluster.start()
        assert not list((cluster.runtime / "nodectl/cluster").glob("*/state/containers/*/[0-9]*"))
